-- Wireshark dissector for TurboTLS datagrams, as docs/draft-headstart-turbotls.md#frames has them.
--
--   wireshark -X lua_script:docs/headstart.lua capture.pcapng
--
-- Datagrams are recognised on any UDP port. On TCP there is nothing but TLS: Wireshark's own
-- dissector shows a join as a ClientHello. Filters: headstart, headstart.session, headstart.seq ...

local headstart = Proto("headstart", "TurboTLS")

local REQUEST, RESPONSE = 8, 9
local VERSION = 2
local REQUEST_HEADER, REQUEST_MIN, RESPONSE_HEADER, DATAGRAM_MAX = 20, 411, 25, 1232
local CLIENT_STREAM_MAX, SERVER_STREAM_MAX = 16384, 20480

local types = { [REQUEST] = "request", [RESPONSE] = "response" }

local f = {
    type = ProtoField.uint8("headstart.type", "Type", base.HEX, types),
    version = ProtoField.uint8("headstart.version", "Version", base.DEC),
    session = ProtoField.bytes("headstart.session", "Session id"),
    seq = ProtoField.uint8("headstart.seq", "Sequence number", base.DEC),
    offset = ProtoField.uint24("headstart.offset", "Offset", base.DEC),
    length = ProtoField.uint16("headstart.length", "Payload length", base.DEC),
    tag = ProtoField.uint32("headstart.tag", "Route tag", base.HEX),
    ack = ProtoField.uint24("headstart.ack", "Client bytes acknowledged", base.DEC),
    payload = ProtoField.bytes("headstart.payload", "Payload"),
    padding = ProtoField.bytes("headstart.padding", "Padding"),
}

local fields = {}
for _, field in pairs(f) do
    fields[#fields + 1] = field
end
headstart.fields = fields

local function uint(tvb, at, length)
    return tvb(at, length):uint()
end

local function is_version(tvb)
    return uint(tvb, 1, 1) == VERSION
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
    return payload > 0
        and uint(tvb, 14, 1) < 16
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
        and uint(tvb, 15, 4) ~= 0
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
    pinfo.cols.info =
        string.format("Request %d, bytes %d+%d", uint(tvb, 14, 1), uint(tvb, 15, 3), payload)
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
    tree:add(f.version, tvb(1, 1))
    dissect(tvb, pinfo, tree)
    return true
end

-- Datagrams on a port chosen by "Decode As" come here, those on any port by the heuristic below.
function headstart.dissector(tvb, pinfo, root)
    return tvb:len() > 0 and datagram(tvb, pinfo, root) and tvb:len() or 0
end

headstart:register_heuristic("udp", datagram)
DissectorTable.get("udp.port"):add_for_decode_as(headstart)
