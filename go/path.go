package turbotls

import "time"

// path is what a client remembers of one network and edge:
// docs/draft-headstart-turbotls.md#grace-and-path-memory.
type path struct {
	rtt      time.Duration
	lag, dev time.Duration
	sampled  bool
	proven   bool
	gainless int // openings that gained nothing, less those that gained

	avoidUntil time.Time
	avoid      time.Duration // the last back-off

	inFlight  int // openings with slots in flight
	slotBytes int // of these
	joins     int
	lastJoin  time.Time

	connects, vainSYNs int
}

// outcome is what one opening says of its path.
type outcome struct {
	timing   timing
	answered time.Time // of the first datagram taken, or late; zero if none came
	silence  bool
	joined   bool
	reset    ResetReason
	slots    int
}

func clamp(d, least, most time.Duration) time.Duration {
	if d > most {
		d = most
	}
	if d < least {
		return least
	}
	return d
}

func later(a, b time.Duration) time.Duration {
	if a > b {
		return a
	}
	return b
}

// timing returns how long an opening waits whose SYN, flight and connection were at these times.
func (p *path) timing(syn, flight, connected time.Time) timing {
	rtt, delay := connected.Sub(syn), flight.Sub(syn)
	if delay < 0 {
		delay = 0
	}
	t := timing{rtt: rtt, due: connected.Add(delay)}
	if p.sampled {
		t.grace = clamp(p.lag+4*p.dev, graceMin, later(waitMin, rtt/2))
	} else {
		t.grace = clamp(rtt/4, graceMin, graceFirstMax)
	}
	bound := later(waitMin, rtt/2)
	if p.proven && rtt-delay-p.lag >= rtt/8 {
		bound = later(waitMin, rtt)
	}
	t.end = t.due.Add(t.grace)
	if last := connected.Add(bound); last.Before(t.end) {
		t.end = last
	}
	if trip := connected.Add(rtt); p.proven && p.inFlight > sequences/2 && t.end.Before(trip) {
		t.end = trip // one of many: answers queue behind each other
	}
	t.worthwhile = rtt-delay >= rtt/8 && t.end.Sub(t.due) >= graceMin
	return t
}

// bears reports whether openings try this path now.
func (p *path) bears(now time.Time) bool { return !now.Before(p.avoidUntil) }

// reserve returns how many slots an opening may send, of those it wants.
func (p *path) reserve(now time.Time, want int) int {
	openings := sessionsPerAddress
	if now.Sub(p.lastJoin) < memoryLife {
		openings += p.joins
	} else {
		p.joins = 0
	}
	if openings > sessionsPerJoiner {
		openings = sessionsPerJoiner
	}
	if room := (inFlightBytes - p.slotBytes) / requestMin; want > room {
		want = room
	}
	if p.inFlight >= openings || want <= 0 {
		return 0
	}
	p.inFlight++
	p.slotBytes += want * requestMin
	return want
}

// release ends an opening that reserved slots.
func (p *path) release(now time.Time, o outcome) {
	p.inFlight--
	p.slotBytes -= o.slots * requestMin
	if o.joined {
		p.joins, p.lastJoin = p.joins+1, now
	}
}

// learn takes the outcome of an opening that sent its flight.
func (p *path) learn(now time.Time, o outcome) {
	switch {
	case o.reset == ResetRefused:
		p.avoidUntil = now.Add(refusedFor)
	case o.reset != "":
		p.backOff(now)
	case o.answered.IsZero():
		p.proven = false
		if o.silence {
			p.backOff(now)
		}
	default:
		p.sample(now, o)
	}
}

func (p *path) sample(now time.Time, o outcome) {
	lag := later(0, o.answered.Sub(o.timing.due))
	if lag > lagMax {
		return
	}
	p.rtt = o.timing.rtt
	p.proven = lag <= later(waitMin, p.rtt/2)
	if p.sampled {
		off := p.lag - lag
		if off < 0 {
			off = -off
		}
		p.dev += (off - p.dev) / 4
		p.lag += (lag - p.lag) / 8
	} else {
		p.lag, p.dev, p.sampled = lag, later(lag/2, firstDeviation), true
	}
	if lag > p.rtt {
		p.gainless++
	} else if p.gainless > 0 {
		p.gainless--
	}
	p.avoid, p.avoidUntil = 0, time.Time{}
	if p.gainless >= gainlessMax {
		p.gainless = 0
		p.backOff(now)
	}
}

func (p *path) backOff(now time.Time) {
	p.avoid = clamp(2*p.avoid, avoidFirst, avoidMax)
	p.avoidUntil = now.Add(p.avoid)
}

// secondSYN returns after what time without a connection a second one is tried.
func (p *path) secondSYN() (time.Duration, bool) {
	if p.vainSYNs*100 > p.connects {
		return 0, false
	}
	if p.rtt == 0 {
		return secondSYNMax, true
	}
	return later(clamp(2*p.rtt, secondSYNMin, secondSYNMax), p.rtt*5/4), true
}
