<?php
// The extension curl, with the roots of the environment, which PHP does not read by itself.
$handle = curl_init($argv[1]);
curl_setopt_array($handle, [
    CURLOPT_RETURNTRANSFER => true,
    CURLOPT_FAILONERROR => true,
    CURLOPT_TIMEOUT => 30,
    CURLOPT_CAINFO => getenv("SSL_CERT_FILE"),
]);
$answer = curl_exec($handle);
if ($answer === false) {
    fwrite(STDERR, curl_error($handle) . "\n");
    exit(1);
}
echo $answer;
