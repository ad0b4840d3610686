use headstart_proto::JoinKey;
use headstart_proto::hello::{self, ClientHello};
use headstart_proto::join::{ACCEPTANCE_LEN, Answer, Join, REFUSAL};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::time::TIMEOUT;

/// Writes a join that shows the names of the ClientHello `hello`, and `behind` in the same segment;
/// returns the answer, of which nothing is left to read.
pub(crate) async fn join(tcp: &mut TcpStream, join: &Join, hello: &[u8], behind: &[u8]) -> Answer {
    let bytes = [join.emit(&parsed(hello)), behind.to_vec()].concat();
    tcp.write_all(&bytes).await.unwrap();
    timeout(TIMEOUT, answer(tcp, &join.key)).await.expect("the join was not answered")
}

/// Reads an answer; checks that a refusal is the last that comes.
async fn answer(tcp: &mut TcpStream, key: &JoinKey) -> Answer {
    let mut bytes = vec![0; REFUSAL.len()];
    tcp.read_exact(&mut bytes).await.unwrap();
    if Answer::read(key, &bytes) == Answer::Incomplete {
        bytes.resize(ACCEPTANCE_LEN, 0);
        tcp.read_exact(&mut bytes[REFUSAL.len()..]).await.unwrap();
        return Answer::read(key, &bytes);
    }
    assert_eq!(bytes, REFUSAL);
    let mut more = Vec::new();
    tcp.read_to_end(&mut more).await.unwrap();
    assert!(more.is_empty(), "bytes behind a refusal: {more:?}");
    Answer::Refused
}

/// Returns the ClientHello that a stream begins with.
pub(crate) fn parsed(stream: &[u8]) -> ClientHello {
    hello::read(stream).unwrap().complete().expect("the ClientHello is not complete")
}
