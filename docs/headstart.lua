-- Wireshark dissector for TurboTLS datagrams and joins, as docs/wire.md section 3 has them.
--
--   wireshark -X lua_script:docs/headstart.lua capture.pcapng
--
-- Datagrams are recognised on any UDP port. A join is recognised on TCP port 443, on others by
-- "Decode As"; what follows it goes to Wireshark's own dissector for TLS. Filters: headstart,
-- headstart.session, headstart.seq ...
-- Written for Lua 5.2 and later: no bit operators.

local headstart = Proto("headstart", "TurboTLS")

local REQUEST, RESPONSE, JOIN, ANSWER = 8, 9, 10, 11
local VERSION = 1
local REQUEST_HEADER, REQUEST_MIN, RESPONSE_HEADER, DATAGRAM_MAX = 20, 411, 25, 1232
local JOIN_LENGTH, ANSWER_LENGTH = 28, 5
local CLIENT_STREAM_MAX, SERVER_STREAM_MAX = 16384, 20480
local TLS_PORT = 443

local types = {
    [REQUEST] = "request",
    [RESPONSE] = "response",
    [JOIN] = "join",
    [ANSWER] = "join answer",
}
local statuses = { [0] = "joined", [1] = "fresh", [2] = "refused" }

local f = {
    type = ProtoField.uint8("headstart.type", "Type", base.HEX, types),
    version = ProtoField.uint8("headstart.version", "Version", base.DEC, nil, 0xf0),
    flags = ProtoField.uint8("headstart.flags", "Flags", base.HEX, nil, 0x0f),
    session = ProtoField.bytes("headstart.session", "Session id"),
    seq = ProtoField.uint8("headstart.seq", "Sequence number", base.DEC),
    offset = ProtoField.uint24("headstart.offset", "Offset", base.DEC),
    length = ProtoField.uint16("headstart.length", "Payload length", base.DEC),
    tag = ProtoField.uint32("headstart.tag", "Route tag", base.HEX),
    ack = ProtoField.uint24("headstart.ack", "Client bytes acknowledged", base.DEC),
    payload = ProtoField.bytes("headstart.payload", "Payload"),
    padding = ProtoField.bytes("headstart.padding", "Padding"),
    key = ProtoField.bytes("headstart.key", "Join key"),
    client = ProtoField.uint24("headstart.client_offset", "Client stream goes on from", base.DEC),
    server = ProtoField.uint24("headstart.server_offset", "Server stream goes on from", base.DEC),
    status = ProtoField.uint8("headstart.status", "Status", base.DEC, statuses),
}

local fields = {}
for _, field in pairs(f) do
    fields[#fields + 1] = field
end
headstart.fields = fields

local stream_number = Field.new("tcp.stream")

-- TCP streams in which a join was seen: only there an answer is one.
local joined = {}
function headstart.init()
    joined = {}
end

local function uint(tvb, at, length)
    return tvb(at, length):uint()
end

local function is_version(tvb)
    return tvb(1, 1):bitfield(0, 4) == VERSION
end

local function add_version(tree, tvb)
    tree:add(f.version, tvb(1, 1))
    tree:add(f.flags, tvb(1, 1))
end

local function add_bytes(tree, field, tvb, from, to)
    if to > from then
        tree:add(field, tvb(from, to - from))
    end
end

local function is_request(tvb)
    local length = tvb:len()
    if length < REQUEST_MIN or length > DATAGRAM_MAX or uint(tvb, 0, 1) ~= REQUEST
        or not is_version(tvb) then
        return false
    end
    local payload = uint(tvb, 18, 2)
    return uint(tvb, 14, 1) < 16
        and REQUEST_HEADER + payload <= length
        and uint(tvb, 15, 3) + payload <= CLIENT_STREAM_MAX
end

local function is_response(tvb)
    local length = tvb:len()
    if length < RESPONSE_HEADER or length > DATAGRAM_MAX or uint(tvb, 0, 1) ~= RESPONSE
        or not is_version(tvb) then
        return false
    end
    return uint(tvb, 14, 1) < 16
        and uint(tvb, 22, 3) + length - RESPONSE_HEADER <= SERVER_STREAM_MAX
end

local function request(tvb, pinfo, tree)
    local payload = uint(tvb, 18, 2)
    tree:add(f.session, tvb(2, 12))
    tree:add(f.seq, tvb(14, 1))
    tree:add(f.offset, tvb(15, 3))
    tree:add(f.length, tvb(18, 2))
    add_bytes(tree, f.payload, tvb, REQUEST_HEADER, REQUEST_HEADER + payload)
    add_bytes(tree, f.padding, tvb, REQUEST_HEADER + payload, tvb:len())
    local what = payload == 0 and "empty" or string.format("bytes %d+%d", uint(tvb, 15, 3), payload)
    pinfo.cols.info = string.format("Request %d, %s", uint(tvb, 14, 1), what)
end

local function response(tvb, pinfo, tree)
    local payload = tvb:len() - RESPONSE_HEADER
    tree:add(f.session, tvb(2, 12))
    tree:add(f.seq, tvb(14, 1))
    tree:add(f.tag, tvb(15, 4))
    tree:add(f.ack, tvb(19, 3))
    tree:add(f.offset, tvb(22, 3))
    add_bytes(tree, f.payload, tvb, RESPONSE_HEADER, tvb:len())
    local what = payload == 0 and "empty" or string.format("bytes %d+%d", uint(tvb, 22, 3), payload)
    pinfo.cols.info =
        string.format("Response to %d, ack %d, %s", uint(tvb, 14, 1), uint(tvb, 19, 3), what)
end

local function datagram(tvb, pinfo, root)
    local dissect = is_request(tvb) and request or is_response(tvb) and response
    if not dissect then
        return false
    end
    pinfo.cols.protocol = "TurboTLS"
    local tree = root:add(headstart, tvb())
    tree:add(f.type, tvb(0, 1))
    add_version(tree, tvb)
    dissect(tvb, pinfo, tree)
    return true
end

local function join(tvb, root)
    local tree = root:add(headstart, tvb(0, JOIN_LENGTH), "TurboTLS, join")
    tree:add(f.type, tvb(0, 1))
    add_version(tree, tvb)
    tree:add(f.key, tvb(2, 16))
    tree:add(f.tag, tvb(18, 4))
    tree:add(f.client, tvb(22, 3))
    tree:add(f.server, tvb(25, 3))
    local client, server = uint(tvb, 22, 3), uint(tvb, 25, 3)
    return string.format("Join from client byte %d, server byte %d", client, server)
end

local function answer(tvb, root)
    local status = statuses[uint(tvb, 1, 1)]
    local tree = root:add(headstart, tvb(0, ANSWER_LENGTH), "TurboTLS, join answer")
    tree:add(f.type, tvb(0, 1))
    tree:add(f.status, tvb(1, 1))
    tree:add(f.server, tvb(2, 3))
    return string.format("Join answer: %s, from server byte %d", status, uint(tvb, 2, 3))
end

-- The length of the frame that a piece of a TCP stream begins with, 0 for none, and what dissects
-- it.
local function frame(tvb, stream)
    local first = uint(tvb, 0, 1)
    if first == JOIN and (tvb:len() == 1 or is_version(tvb)) then
        return JOIN_LENGTH, join
    elseif first == ANSWER and joined[stream] and (tvb:len() == 1 or statuses[uint(tvb, 1, 1)]) then
        return ANSWER_LENGTH, answer
    end
    return 0, nil
end

-- Passes what is behind a frame to the dissector for TLS, which counts from where its own bytes
-- start.
local function pass_on(tvb, pinfo, root, from)
    Dissector.get("tls"):call(tvb(from):tvb(), pinfo, root)
    if from > 0 and pinfo.desegment_len ~= 0 then
        pinfo.desegment_offset = pinfo.desegment_offset + from
    end
end

local function segment(tvb, pinfo, root)
    local stream = stream_number()
    stream = stream and stream.value
    local length, dissect = frame(tvb, stream)
    if length == 0 then
        pass_on(tvb, pinfo, root, 0)
        return tvb:len()
    end
    if tvb:len() < length then
        pinfo.desegment_offset = 0
        pinfo.desegment_len = length - tvb:len()
        return tvb:len()
    end
    if dissect == join and stream then
        joined[stream] = true
    end
    pinfo.cols.protocol = "TurboTLS"
    local info = dissect(tvb, root)
    if tvb:len() > length then
        pass_on(tvb, pinfo, root, length)
    end
    pinfo.cols.info:prepend(info .. "; ")
    return tvb:len()
end

-- Datagrams and TCP segments come here by port, datagrams on any port by the heuristic below.
function headstart.dissector(tvb, pinfo, root)
    if tvb:len() == 0 then
        return 0
    end
    if pinfo.port_type == 2 then
        return segment(tvb, pinfo, root)
    end
    return datagram(tvb, pinfo, root) and tvb:len() or 0
end

headstart:register_heuristic("udp", datagram)
DissectorTable.get("tcp.port"):add(TLS_PORT, headstart)
DissectorTable.get("udp.port"):add_for_decode_as(headstart)
