<?php
// The extension curl, with the roots of the environment, which PHP does not read by itself; where an agent is named, HTTP
// on a stream of its socket (docs/managed.md): then the agent speaks TLS.

function ordinary(string $url): string
{
    $handle = curl_init($url);
    curl_setopt_array($handle, [
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_FAILONERROR => true,
        CURLOPT_TIMEOUT => 30,
        CURLOPT_CAINFO => getenv("SSL_CERT_FILE"),
    ]);
    $answer = curl_exec($handle);
    if ($answer === false) {
        throw new RuntimeException(curl_error($handle));
    }
    return $answer;
}

function managed(string $url, string $agent): string
{
    ["host" => $host, "path" => $path] = parse_url($url);
    $stream = stream_socket_client("unix://$agent", $code, $why, 30);
    if ($stream === false) {
        throw new RuntimeException("$agent: $why");
    }
    $request = "GET $path HTTP/1.1\r\nHost: $host\r\nConnection: close\r\n\r\n";
    $early = getenv("HEADSTART_EARLY") ? "Headstart-Early-Data: " . base64_encode($request) . "\r\n" : "";
    fwrite($stream, "CONNECT $host:443 HTTP/1.1\r\nHost: $host:443\r\nHeadstart-TLS: managed\r\n"
        . "Headstart-ALPN: http/1.1\r\nHeadstart-Context: " . getenv("HEADSTART_CONTEXT") . "\r\n$early\r\n");
    if (!preg_match('/^headstart-early-data: accepted\r$/mi', head($stream))) {
        fwrite($stream, $request);
    }
    if (!preg_match('/^content-length:\s*(\d+)/mi', head($stream), $length)) {
        throw new RuntimeException("no length");
    }
    $answer = stream_get_contents($stream, (int) $length[1]);
    if (strlen($answer) < (int) $length[1]) {
        throw new RuntimeException("cut off");
    }
    return $answer;
}

function head($stream): string
{
    $head = "";
    while (($line = fgets($stream)) !== false) {
        $head .= $line;
        if ($line === "\r\n") {
            break;
        }
    }
    if (!preg_match('{^HTTP/1\.[01] 200}', $head)) {
        throw new RuntimeException($head === "" ? "cut off" : $head);
    }
    return $head;
}

try {
    $agent = getenv("HEADSTART_SOCKET");
    echo $agent === false ? ordinary($argv[1]) : managed($argv[1], $agent);
} catch (RuntimeException $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
