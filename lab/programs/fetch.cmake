# file(DOWNLOAD), with libcurl below. CMake writes to a file, and nothing else to standard output.
file(DOWNLOAD "${URL}" "${OUT}" TLS_VERIFY ON TLS_CAINFO "$ENV{SSL_CERT_FILE}" TIMEOUT 30 STATUS STATUS)
list(GET STATUS 0 CODE)
if(NOT CODE EQUAL 0)
  message(FATAL_ERROR "${STATUS}")
endif()
