package turbotls

import (
	"testing"
	"time"
)

const ms = time.Millisecond

var epoch = time.Unix(1000, 0)

func TestGrace(t *testing.T) {
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	for name, test := range map[string]struct {
		path            path
		flight, connect time.Duration
		grace, end      time.Duration
		worthwhile      bool
	}{
		"new, fast":            {path{}, 0, ms, 2 * ms, 3 * ms, true},
		"new":                  {path{}, 0, 40 * ms, 10 * ms, 50 * ms, true},
		"new, slow":            {path{}, 0, 400 * ms, 25 * ms, 425 * ms, true},
		"a delay":              {path{}, 10 * ms, 40 * ms, 10 * ms, 60 * ms, true},
		"cut at half a trip":   {path{}, 15 * ms, 40 * ms, 10 * ms, 60 * ms, true},
		"new, a long delay":    {path{}, 30 * ms, 40 * ms, 10 * ms, 60 * ms, false},
		"proven, a long delay": {path{proven: true}, 30 * ms, 40 * ms, 10 * ms, 80 * ms, true},
		"nothing left to save": {path{proven: true}, 36 * ms, 40 * ms, 10 * ms, 60 * ms, false},
		"samples": {
			path{sampled: true, lag: 3 * ms, dev: ms}, 0, 40 * ms, 7 * ms, 47 * ms, true,
		},
		"one of many": {
			path{proven: true, inFlight: 9}, 0, 40 * ms, 10 * ms, 80 * ms, true,
		},
	} {
		got := test.path.timing(epoch, at(test.flight), at(test.connect))
		if got.grace != test.grace || !got.end.Equal(at(test.end)) || got.worthwhile != test.worthwhile {
			t.Errorf("%s: %v, ends at %v, %v", name, got.grace, got.end.Sub(epoch), got.worthwhile)
		}
	}
}

func TestPathMemory(t *testing.T) {
	var p path
	timing := p.timing(epoch, epoch, epoch.Add(40*ms))
	answered := outcome{timing: timing, answered: timing.due.Add(ms)}
	p.learn(epoch, answered)
	if !p.proven || !p.bears(epoch) {
		t.Errorf("answered: %+v", p)
	}
	silent := outcome{timing: timing, silence: true}
	p.learn(epoch, silent)
	if p.proven || p.bears(epoch.Add(avoidFirst-1)) || !p.bears(epoch.Add(avoidFirst)) {
		t.Errorf("silence: %+v", p)
	}
	p.learn(epoch, silent)
	if p.bears(epoch.Add(2*avoidFirst - 1)) {
		t.Errorf("silence again: %+v", p)
	}
	p.learn(epoch, answered)
	if !p.bears(epoch) {
		t.Errorf("answered again: %+v", p)
	}
	for i := 0; i < gainlessMax; i++ {
		if !p.bears(epoch) {
			t.Errorf("after %d: %+v", i, p)
		}
		p.learn(epoch, outcome{timing: timing, answered: timing.due.Add(41 * ms)})
	}
	if p.bears(epoch) {
		t.Errorf("nothing gained: %+v", p)
	}
	p.learn(epoch, outcome{timing: timing, reset: ResetRefused})
	if p.bears(epoch.Add(refusedFor - 1)) {
		t.Errorf("refused: %+v", p)
	}
}

func TestSlotsInFlight(t *testing.T) {
	var p path
	opened := 0
	for p.reserve(epoch, 5) > 0 {
		opened++
	}
	if opened != 16 {
		t.Errorf("%d openings", opened)
	}
	for ; opened > 0; opened-- {
		p.release(epoch, outcome{slots: 5, joined: true})
	}
	for p.reserve(epoch, 5) > 0 {
		opened++
	}
	if opened != 24 { // 32 by the joins, but no more than 120 slots
		t.Errorf("%d openings behind joins", opened)
	}
}

func TestSecondSYN(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{
		0: 250 * ms, ms: 10 * ms, 40 * ms: 80 * ms, 160 * ms: 250 * ms, 400 * ms: 500 * ms,
	} {
		p := path{rtt: rtt}
		if got, ok := p.secondSYN(); !ok || got != want {
			t.Errorf("%v: %v", rtt, got)
		}
	}
	p := path{connects: 199, vainSYNs: 2}
	if _, ok := p.secondSYN(); ok {
		t.Error("two of 199 were in vain")
	}
}
