# net/http; where an agent is named, on a stream of its socket (docs/managed.md): then the agent speaks TLS.
require "net/http"
require "socket"

AGENT = ENV["HEADSTART_SOCKET"]

# net/http without TLS of its own, on what the agent gives.
class Managed < Net::HTTP
  def connect
    stream = UNIXSocket.new(AGENT)
    stream.write("CONNECT #{address}:#{port} HTTP/1.1\r\nHost: #{address}:#{port}\r\nHeadstart-TLS: managed\r\n" \
                 "Headstart-ALPN: http/1.1\r\nHeadstart-Context: #{ENV.fetch("HEADSTART_CONTEXT")}\r\n\r\n")
    head = +""
    head << stream.readpartial(1) until head.end_with?("\r\n\r\n")
    raise head unless head.start_with?("HTTP/1.1 200")

    @socket = Net::BufferedIO.new(stream, read_timeout: 30, write_timeout: 30)
  end
end

url = URI(ARGV[0])
kind = AGENT ? Managed : Net::HTTP
http = kind.new(url.host, url.port, nil)
http.use_ssl = AGENT.nil?
answer = http.start { http.get(url.path, "Host" => url.host) }
answer.value
$stdout.binmode.write(answer.body)
