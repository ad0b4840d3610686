# net/http; where an agent is named, on a stream of its socket (docs/managed.md): then the agent speaks TLS.
require "net/http"
require "socket"
require "stringio"

AGENT = ENV["HEADSTART_SOCKET"]
EARLY = ENV["HEADSTART_EARLY"]

# net/http without TLS of its own, on what the agent gives.
class Managed < Net::HTTP
  attr_accessor :early

  def connect
    stream = UNIXSocket.new(AGENT)
    field = "Headstart-Early-Data: #{[bytes(early)].pack("m0")}\r\n" if early
    stream.write("CONNECT #{address}:#{port} HTTP/1.1\r\nHost: #{address}:#{port}\r\nHeadstart-TLS: managed\r\n" \
                 "Headstart-ALPN: http/1.1\r\nHeadstart-Context: #{ENV.fetch("HEADSTART_CONTEXT")}\r\n#{field}\r\n")
    head = +""
    head << stream.readpartial(1) until head.end_with?("\r\n\r\n")
    raise head unless head.start_with?("HTTP/1.1 200")

    # The server has the request already: it is not written again.
    early.define_singleton_method(:exec) { |*| } if head.match?(/^headstart-early-data: accepted\r$/i)
    @socket = Net::BufferedIO.new(stream, read_timeout: 30, write_timeout: 30)
  end

  def bytes(request)
    StringIO.new.tap { |to| request.exec(to, "1.1", request.path) }.string
  end
end

url = URI(ARGV[0])
kind = AGENT ? Managed : Net::HTTP
http = kind.new(url.host, url.port, nil)
http.use_ssl = AGENT.nil?
request = Net::HTTP::Get.new(url.path, "Host" => url.host)
if AGENT && EARLY
  http.early = request
  http.max_retries = 0
end
answer = http.start { http.request(request) }
answer.value
$stdout.binmode.write(answer.body)
