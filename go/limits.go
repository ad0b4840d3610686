package turbotls

import "time"

// The limits and constants of the protocol: docs/draft-headstart-turbotls.md#constants, unless a
// reason stands here. Whatever anyone on the internet can make this package store is bounded by one
// of them.
const (
	version      = 2
	typeRequest  = 0x08
	typeResponse = 0x09

	// Sizes of datagrams: the IPv6 minimum MTU less 48, and a third of that for a request, since
	// a response is at most three times as large as what it answers.
	datagramMax    = 1232
	requestMin     = 411
	requestHeader  = 20
	responseHeader = 25
	amplification  = 3

	requestPayloadMax = datagramMax - requestHeader
	pieceLen          = requestMin - requestHeader // of the ClientHello, in a slot
	sequences         = 16

	// Bytes of each stream that datagrams may carry: what a session stores in memory at most.
	clientStreamMax = 16384
	serverStreamMax = 20480

	slotsMax     = 14 // for the server's flight; one more is for the acknowledgement
	slotsDefault = 4

	recordHeader    = 5
	recordMax       = 16384 // of a ClientHello
	recordStreamMax = 18432 // of any record of TLS 1.2, which may be 2,048 bytes larger

	joinRecordMax   = 512
	joinNamesMax    = 270 // the extensions server_name and ALPN together
	joinIdentityMax = 208
	joinIdentityMin = 26
	answerLen       = 133

	// Sessions of an edge: 1,024 of 52 KiB each at most, with a flag for each client byte.
	sessionsMax         = 1024
	gatheringMax        = 256
	sessionsPerAddress  = 16
	sessionsPerNetwork  = 64
	sessionsPerJoiner   = 128
	streamsPerSession   = 4 // a quarter of the origin streams, at most, is unproven
	memoryMax           = 65536
	joinersMax          = 4096 // addresses that have joined in the last 10 s: 64 bytes each
	gatheringLife       = 2 * time.Second
	sessionLife         = 10 * time.Second
	sparedLife          = 120 * time.Second
	memoryLife          = 10 * time.Second
	handshakeWork       = 500 * time.Microsecond
	workBurst           = 2 // seconds' worth at once
	workShare           = 20
	helloTimeoutDefault = 2 * time.Minute
	pendingHellosMax    = 4096 // TCP streams without a whole ClientHello: 16 KiB each at most
	acceptBacklog       = 128  // sessions that Accept has not returned yet
	closeDrain          = time.Second
	streamsDefault      = sessionsMax * streamsPerSession
	sessionGiveUp       = 8 * time.Second
	earlyGiveUp         = 18 * time.Second
	joinTimeout         = 120 * time.Second
	graceMin            = 2 * time.Millisecond
	graceFirstMax       = 25 * time.Millisecond
	waitMin             = 10 * time.Millisecond
	firstDeviation      = 3 * time.Millisecond
	lagMax              = 2 * time.Second
	refusedFor          = 24 * time.Hour
	gainlessMax         = 16 // openings that gained nothing, less those that gained
	avoidFirst          = time.Minute
	avoidMax            = time.Hour
	inFlightBytes       = 49320 // of slots, eight openings with fifteen
	secondSYNMin        = 10 * time.Millisecond
	secondSYNMax        = 250 * time.Millisecond
	nextAddressAfter    = 250 * time.Millisecond // RFC 8305, section 5
	closeLinger         = 5 * time.Second        // for what was written before Close
	connectTimeout      = 30 * time.Second
	httpsRecordWait     = 50 * time.Millisecond
	pathsMax            = 1024  // paths remembered: 200 bytes each
	namesMax            = 1024  // names remembered, with their advertisements: 1 KiB each
	writeAheadMax       = 65536 // bytes that an application may write before TCP is connected
	dnsTimeout          = 2 * time.Second
	dnsMessageMax       = 16384 // over TCP, whose answers could have 65,535 bytes
	aliasesMax          = 4
	adverTTLMin         = 5 * time.Second
	adverTTLMax         = time.Hour
	advertisedKey       = 65480
	advertisementMax    = 255
)
