# HTTP::Tiny with IO::Socket::SSL; where an agent is named, HTTP on a stream of its socket (docs/managed.md): then the
# agent speaks TLS.
use strict;
use warnings;
use MIME::Base64 qw(encode_base64);

my $url = shift;
my $agent = $ENV{HEADSTART_SOCKET};
binmode STDOUT;

sub ordinary {
    require HTTP::Tiny;
    my %options = (SSL_ca_file => $ENV{SSL_CERT_FILE});
    my $answer = HTTP::Tiny->new(verify_SSL => 1, timeout => 30, SSL_options => \%options)->get($url);
    die "$answer->{status} $answer->{content}" unless $answer->{success};
    return $answer->{content};
}

sub managed {
    require IO::Socket::UNIX;
    my ($host, $path) = $url =~ m{^https://([^/]+)(/.*)$} or die "no URL: $url";
    my $stream = IO::Socket::UNIX->new(Peer => $agent) or die "$agent: $!";
    my $request = "GET $path HTTP/1.1\r\nHost: $host\r\nConnection: close\r\n\r\n";
    my $early = $ENV{HEADSTART_EARLY} ? 'Headstart-Early-Data: ' . encode_base64($request, '') . "\r\n" : '';
    print $stream "CONNECT $host:443 HTTP/1.1\r\nHost: $host:443\r\nHeadstart-TLS: managed\r\n",
        "Headstart-ALPN: http/1.1\r\nHeadstart-Context: $ENV{HEADSTART_CONTEXT}\r\n$early\r\n";
    my $head = head($stream);
    die $head unless $head =~ m{^HTTP/1\.1 200};
    print $stream $request unless $head =~ /^headstart-early-data: accepted\r$/mi;
    $head = head($stream);
    die $head unless $head =~ m{^HTTP/1\.[01] 200};
    my ($length) = $head =~ /^content-length:\s*(\d+)/mi or die "no length: $head";
    my $content = '';
    while (length($content) < $length) {
        read($stream, $content, $length - length($content), length($content)) or die 'cut off';
    }
    return $content;
}

sub head {
    my ($stream) = @_;
    my $head = '';
    while (my $line = <$stream>) {
        $head .= $line;
        return $head if $line eq "\r\n";
    }
    die "cut off: $head";
}

print $agent ? managed() : ordinary();
