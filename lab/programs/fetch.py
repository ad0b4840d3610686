# Python's own urllib, as it comes.
import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
    sys.stdout.buffer.write(answer.read())
