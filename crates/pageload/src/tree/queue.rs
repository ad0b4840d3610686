use std::collections::HashMap;
use std::time::Duration;

use crate::page::{Page, Protocol, Resource, Timings};

/// Returns the time that each resource waited for others on its connection: the part of its time in
/// the queue in which the connection that it came over was busy with others.
///
/// That is what HTTP/1.1 makes requests wait for. Over HTTP/2 and 3 none waits for another so; that
/// a lost packet holds up other responses of a TCP connection is not seen in a recording. Zero
/// where the connection is not recorded.
pub fn head_of_line(page: &Page) -> Vec<Duration> {
    let mut busy: HashMap<u32, Vec<(Duration, Duration)>> = HashMap::new();
    for resource in page.resources() {
        if let Some((connection, timings)) = in_turn(page, resource) {
            let begin = timings.started.saturating_add(timings.queued);
            busy.entry(connection).or_default().push((begin, timings.end()));
        }
    }
    for times in busy.values_mut() {
        *times = joined(std::mem::take(times));
    }
    page.resources()
        .iter()
        .map(|resource| {
            let Some((connection, timings)) = in_turn(page, resource) else {
                return Duration::ZERO;
            };
            let queue = (timings.started, timings.started.saturating_add(timings.queued));
            busy.get(&connection).map(|busy| overlap(busy, queue)).unwrap_or_default()
        })
        .collect()
}

/// Returns its connection and times, if requests take turns there.
fn in_turn<'a>(page: &Page, resource: &'a Resource) -> Option<(u32, &'a Timings)> {
    let server = page.servers().get(resource.server)?;
    let takes_turns = server.protocol == Protocol::Http1;
    takes_turns.then_some((resource.connection?, resource.measured.as_ref()?))
}

/// Sorts and merges intervals that overlap or touch.
fn joined(mut times: Vec<(Duration, Duration)>) -> Vec<(Duration, Duration)> {
    times.sort_unstable();
    let mut joined: Vec<(Duration, Duration)> = Vec::with_capacity(times.len());
    for (begin, end) in times {
        match joined.last_mut() {
            Some((_, last)) if begin <= *last => *last = end.max(*last),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

fn overlap(busy: &[(Duration, Duration)], (begin, end): (Duration, Duration)) -> Duration {
    let first = busy.partition_point(|(_, busy_end)| *busy_end <= begin);
    let within = busy.iter().skip(first).take_while(|(busy_begin, _)| *busy_begin < end);
    within.map(|(from, to)| end.min(*to).saturating_sub(begin.max(*from))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Server;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn resource(connection: u32, started: u64, queued: u64, wait: u64) -> Resource {
        let (started, queued, wait) = (ms(started), ms(queued), ms(wait));
        let measured = Some(Timings { started, queued, wait, ..Timings::default() });
        Resource { connection: Some(connection), measured, ..Resource::default() }
    }

    fn waited(protocol: Protocol, resources: Vec<Resource>) -> Vec<Duration> {
        let server = Server::https("a.test", protocol);
        head_of_line(&Page::new("page".into(), vec![server], resources).unwrap())
    }

    #[test]
    fn requests_of_a_connection_wait_for_each_other() {
        let resources = vec![
            resource(0, 0, 0, 100),
            // 20 of these 90 ms the connection had nothing to do.
            resource(0, 30, 90, 80),
            resource(0, 40, 160, 10),
            resource(1, 40, 50, 10),
        ];
        let expected = [0, 70, 140, 0].map(ms);
        assert_eq!(waited(Protocol::Http1, resources.clone()), expected);
        assert_eq!(waited(Protocol::Http2, resources), [Duration::ZERO; 4]);
    }

    #[test]
    fn unrecorded_connections_are_not_counted() {
        let mut resources = vec![resource(0, 0, 0, 100), resource(0, 30, 90, 80)];
        resources[1].connection = None;
        assert_eq!(waited(Protocol::Http1, resources), [Duration::ZERO; 2]);
    }
}
