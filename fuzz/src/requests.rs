//! Requests through an edge that speaks HTTP.

mod frames;
mod origin;
mod site;

use std::cell::OnceCell;
use std::cmp::Reverse;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

use super::{run, settle};
use frames::Streams;
use origin::Asked;
use site::Site;

/// Bytes of a client that wait for the edge at most, and of the edge for it.
const ROOM: usize = 64 * 1024;

/// Any bytes as a client whose TLS is through, the first says of which HTTP, and whether the frames
/// of HTTP/2 are made of them: what comes to the origin are requests of HTTP/1.1 that everybody
/// reads the same, for its own names, no more than were asked, and whole only with the body that
/// the client sent.
pub fn requests(bytes: &[u8]) {
    thread_local! { static SITE: OnceCell<Site> = const { OnceCell::new() }; }
    let Some((&how, rest)) = bytes.split_first() else { return };
    let (is_http2, sent) = match how % 4 {
        0 | 1 => (true, frames::made(rest)),
        2 => (true, [frames::PREFACE, rest].concat()),
        _ => (false, rest.to_vec()),
    };
    let requests = SITE.with(|site| {
        let site = site.get_or_init(|| run(Site::new()));
        run(ask(site, sent.clone(), is_http2))
    });
    for one in &requests {
        one.check();
    }
    let whole = requests.iter().filter(|one| one.is_whole);
    if is_http2 {
        let streams = Streams::read(&sent);
        assert!(requests.len() <= streams.all.len(), "more than were asked");
        let mut left: Vec<_> = streams.all.values().collect();
        let mut whole: Vec<_> = whole.collect();
        // The longest first: what begins with it begins with the shorter ones, too.
        whole.sort_by_key(|one| (!one.is_chunked, Reverse(one.body.len())));
        for one in whole {
            let found = left.iter().position(|stream| match one.is_chunked {
                true => stream.has_ended && stream.data == one.body,
                // The client has said the length before.
                false => stream.data.starts_with(&one.body),
            });
            left.swap_remove(found.expect("a body that was not sent to its end"));
        }
    } else {
        let versions = sent.windows(7).filter(|part| part == b"HTTP/1.").count();
        assert!(requests.len() <= versions, "more than were asked");
    }
}

/// Returns what comes to the origin of what a client sends.
async fn ask(site: &Site, sent: Vec<u8>, is_http2: bool) -> Vec<Asked> {
    let (client, edge) = duplex(ROOM);
    let serving = site.edge.serve(edge, is_http2);
    let asking = async {
        let (mut answers, mut client) = split(client);
        let reading = tokio::spawn(async move {
            let mut received = Vec::new();
            let _ = answers.read_to_end(&mut received).await;
        });
        let _ = client.write_all(&sent).await;
        site.origin.quiet().await;
        // Half of a connection does not count.
        reading.abort();
        let _ = reading.await;
        drop(client);
    };
    let (served, ()) = tokio::join!(serving, asking);
    served.unwrap();
    settle().await;
    site.origin.take()
}
