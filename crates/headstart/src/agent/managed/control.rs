//! Requests about sessions, policies and contexts; each about the caller's own, but for root's.

use std::time::Duration;

use headstart_net::Context;
use headstart_sessions::{Filter, Listed, Policy, Server, Sharing, Whose};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, Answer, Refusal};
use super::caller::Caller;
use super::limits::BODY_MAX;
use super::request::label;
use super::{audit, ticket};
use crate::agent::serve::Settings;

const WELCOME: &str = "\
This is the socket of headstart agent, for managed TLS (docs/managed.md).
CONNECT host:port with Headstart-TLS: managed opens a connection;
GET /sessions and GET /policies show what is kept.
";

const ROOT: u32 = 0;

/// Answers a request other than CONNECT.
///
/// # Errors
/// Why it is not fulfilled.
pub(super) async fn answer(
    request: Request<Incoming>,
    caller: &Caller,
    settings: &Settings,
) -> Result<Answer, Refusal> {
    if request.uri().path() == "/" && request.method() == Method::GET {
        return Ok(answer::text(StatusCode::OK, WELCOME));
    }
    let uid = caller.user.ok_or_else(nobody)?;
    if request.uri().path() == "/ticket" {
        return ticket::answer(request, uid, caller, settings).await;
    }
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let query = Query::read(head.uri.query().unwrap_or_default())?;
    let found = match path {
        "/sessions" => sessions(&head.method, uid, &query, settings)?,
        "/policies" if head.method == Method::GET => Some(policies(uid, &query, settings)?),
        // One of the caller's own contexts, as nothing else can be named.
        _ if query != Query::default() => return Err(Refusal::malformed("no query belongs here")),
        _ => match (path.strip_prefix("/policies/"), path.strip_prefix("/contexts/")) {
            (Some(name), _) => {
                let context = context(uid, name)?;
                let body = body_of(body, &head.method).await?;
                policy(&head.method, &context, &body, settings)?
            }
            (_, Some(name)) => ended(&head.method, &context(uid, name)?, settings),
            _ => return Err(not_found()),
        },
    };
    found.map(|value| answer::json(&value)).ok_or_else(answer::wrong_method)
}

/// Parameters of a query.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    server: Option<String>,
    /// Empty: that without a label.
    context: Option<String>,
    user: Option<String>,
}

impl Query {
    fn read(text: &str) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "server" => &mut query.server,
                "context" => &mut query.context,
                "user" => &mut query.user,
                _ => return Err(Refusal::malformed("a query has server, context and user")),
            };
            if place.replace(decoded(value)?).is_some() {
                return Err(Refusal::malformed(format!("{name} is there more than once")));
            }
        }
        Ok(query)
    }
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| Refusal::malformed("a label is UTF-8"))
}

/// The context that a path or a query names.
fn context(uid: u32, name: &str) -> Result<Context, Refusal> {
    let name = decoded(name)?;
    let label = if name.is_empty() { None } else { Some(label(&name)?) };
    Ok(Context { uid: Some(uid), label })
}

/// Whom a request is about: the caller, or as root says.
enum About {
    User(u32),
    Everybody,
}

impl About {
    fn from_query(uid: u32, query: &Query) -> Result<Self, Refusal> {
        let Some(user) = &query.user else { return Ok(Self::User(uid)) };
        let about = match user.as_str() {
            "all" => Self::Everybody,
            number => Self::User(
                number.parse().map_err(|_| Refusal::malformed("user is a number, or all"))?,
            ),
        };
        match about {
            Self::User(user) if user == uid => Ok(about),
            _ if uid == ROOT => Ok(about),
            _ => Err(foreign()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::User(user) => user.to_string(),
            Self::Everybody => "all".into(),
        }
    }
}

fn sessions(
    method: &Method,
    uid: u32,
    query: &Query,
    settings: &Settings,
) -> Result<Option<Value>, Refusal> {
    match *method {
        Method::GET => Ok(Some(listed(uid, query, settings)?)),
        Method::DELETE => Ok(Some(forget(uid, query, settings)?)),
        _ => Ok(None),
    }
}

fn listed(uid: u32, query: &Query, settings: &Settings) -> Result<Value, Refusal> {
    let user = shown(uid, query)?;
    let now = settings.known.now();
    let store = settings.known.store();
    let rows: Vec<_> = store.list(user, now).map(|row| row_of(&row)).collect();
    Ok(json!({ "sessions": rows }))
}

/// Returns the user whose things are shown: root's request shows everybody's, unless it names a
/// user. None is all.
fn shown(uid: u32, query: &Query) -> Result<Option<u32>, Refusal> {
    if query.server.is_some() || query.context.is_some() {
        return Err(Refusal::malformed("a list is of a user, and nothing less"));
    }
    if uid == ROOT && query.user.is_none() {
        return Ok(None);
    }
    Ok(match About::from_query(uid, query)? {
        About::User(user) => Some(user),
        About::Everybody => None,
    })
}

fn row_of(row: &Listed<'_>) -> Value {
    let alpn = row.alpn.iter().map(|name| String::from_utf8_lossy(name));
    let mut value = json!({
        "context": row.context.label,
        "uid": row.context.uid,
        "alpn": alpn.collect::<Vec<_>>(),
        "tickets": row.tickets,
        "bytes": row.bytes,
        "newest_ms": ms(row.newest),
        "expires_ms": ms(row.expires),
        "early_data": row.early_data,
    });
    match row.server {
        Server::Name(name) => value["server"] = name.into(),
        Server::Certificate(names) => value["certificate"] = names.iter().collect(),
    }
    value
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Without a server, cookies are forgotten too.
fn forget(uid: u32, query: &Query, settings: &Settings) -> Result<Value, Refusal> {
    let about = About::from_query(uid, query)?;
    let server = query.server.as_deref();
    let one = match (&query.context, &about) {
        (None, _) => None,
        (Some(name), About::User(user)) => Some(labelled(*user, name)?),
        (Some(_), About::Everybody) => {
            return Err(Refusal::malformed("a context is one user's: name that, not all"));
        }
    };
    let whose = match (&one, &about) {
        (Some(context), _) => Whose::Context(context),
        (None, About::User(user)) => Whose::User(*user),
        (None, About::Everybody) => Whose::Everybody,
    };
    let count = settings.known.store().forget(&Filter { server, whose });
    if server.is_none() {
        settings.connector.forget(whose);
    }
    audit::forgotten(Some(uid), &about.text(), server, count);
    Ok(json!({ "forgotten": count }))
}

/// The context with this label, already decoded.
fn labelled(uid: u32, name: &str) -> Result<Context, Refusal> {
    let label = if name.is_empty() { None } else { Some(label(name)?) };
    Ok(Context { uid: Some(uid), label })
}

fn policies(uid: u32, query: &Query, settings: &Settings) -> Result<Value, Refusal> {
    let user = shown(uid, query)?;
    let store = settings.known.store();
    let own = store.policies().filter(|(context, _)| user.is_none() || context.uid == user);
    let mut rows: Vec<_> = own.collect();
    rows.sort_by(|(one, _), (other, _)| (one.uid, &one.label).cmp(&(other.uid, &other.label)));
    let rows: Vec<_> =
        rows.into_iter().map(|(context, policy)| shown_policy(context, policy)).collect();
    Ok(json!({ "policies": rows }))
}

fn policy(
    method: &Method,
    context: &Context,
    body: &[u8],
    settings: &Settings,
) -> Result<Option<Value>, Refusal> {
    let mut store = settings.known.store();
    let change = match *method {
        Method::GET => return Ok(Some(shown_policy(context, store.policy(context)))),
        Method::PUT => Some(Wanted::read(body)?.over(store.policy(context))),
        Method::DELETE => None,
        _ => return Ok(None),
    };
    store.set_policy(context, change).map_err(|reason| {
        let hint = "headstart sessions policy shows those that are there";
        Refusal::new(
            StatusCode::CONFLICT,
            "policy",
            format!("the policy is not set: {reason}"),
            hint,
        )
    })?;
    let now = store.policy(context);
    drop(store);
    if now.sharing == Sharing::Isolate {
        // Existing state would link later connections.
        settings.connector.forget_context(context);
    }
    audit::changed(context.uid, context.label.as_deref(), sharing_name(now.sharing));
    Ok(Some(shown_policy(context, now)))
}

/// The end of a context.
fn ended(method: &Method, context: &Context, settings: &Settings) -> Option<Value> {
    if *method != Method::DELETE {
        return None;
    }
    let forgotten = settings.known.store().end_context(context);
    settings.connector.forget_context(context);
    audit::changed(context.uid, context.label.as_deref(), "ended");
    Some(json!({ "forgotten": forgotten }))
}

/// Changes to a policy; a missing field stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    sharing: Option<String>,
    lifetime_ms: Option<u64>,
    early_data: Option<bool>,
}

impl Wanted {
    fn read(body: &[u8]) -> Result<Self, Refusal> {
        let wanted: Self = serde_json::from_slice(body)
            .map_err(|error| Refusal::malformed(format!("no policy: {error}")))?;
        if let Some(sharing) = &wanted.sharing {
            sharing_of(sharing)?;
        }
        Ok(wanted)
    }

    fn over(&self, before: Policy) -> Policy {
        let sharing = self.sharing.as_deref().and_then(|name| sharing_of(name).ok());
        Policy {
            sharing: sharing.unwrap_or(before.sharing),
            lifetime: self.lifetime_ms.map_or(before.lifetime, Duration::from_millis),
            early_data: self.early_data.unwrap_or(before.early_data),
        }
    }
}

fn shown_policy(context: &Context, policy: Policy) -> Value {
    json!({
        "context": context.label,
        "uid": context.uid,
        "sharing": sharing_name(policy.sharing),
        "lifetime_ms": ms(policy.lifetime),
        "early_data": policy.early_data,
    })
}

const fn sharing_name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Share => "share",
        Sharing::ShareCertificate => "certificate",
        Sharing::Isolate => "isolate",
        Sharing::Off => "off",
    }
}

fn sharing_of(name: &str) -> Result<Sharing, Refusal> {
    let all = [Sharing::Share, Sharing::ShareCertificate, Sharing::Isolate, Sharing::Off];
    let found = all.into_iter().find(|sharing| sharing_name(*sharing) == name);
    found.ok_or_else(|| Refusal::malformed("sharing is share, certificate, isolate or off"))
}

/// The body of a PUT; others have none that matters.
async fn body_of(body: Incoming, method: &Method) -> Result<Vec<u8>, Refusal> {
    if *method != Method::PUT {
        return Ok(Vec::new());
    }
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(_) => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "the body is not whole, or has more than 4 KiB",
            "a policy has some hundred bytes",
        )),
    }
}

fn nobody() -> Refusal {
    let hint = "is the caller in another container, or on another machine?";
    Refusal::new(
        StatusCode::FORBIDDEN,
        "user",
        "the kernel does not say whose request this is",
        hint,
    )
}

fn foreign() -> Refusal {
    let hint = "only root may name another user";
    Refusal::new(StatusCode::FORBIDDEN, "user", "that is another user's", hint)
}

fn not_found() -> Refusal {
    let hint = "there are /sessions, /policies and /contexts";
    Refusal::new(StatusCode::NOT_FOUND, "not_found", "there is no such thing here", hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_bounded_to_what_is_known() {
        let query = Query::read("server=a.example&context=a%20b%2F&").unwrap();
        assert_eq!(query.server.as_deref(), Some("a.example"));
        assert_eq!(query.context.as_deref(), Some("a b/"));
        assert_eq!(Query::read("").unwrap(), Query::default());
        for wrong in ["serve=a", "server=a&server=b", "context=%ff"] {
            assert_eq!(Query::read(wrong).unwrap_err().name, "bad_request", "{wrong}");
        }
    }

    #[test]
    fn only_root_is_about_others() {
        for (uid, user, expected) in [
            (5, "5", Ok("5")),
            (5, "6", Err("user")),
            (5, "0", Err("user")),
            (5, "all", Err("user")),
            (0, "6", Ok("6")),
            (0, "all", Ok("all")),
            (0, "-1", Err("bad_request")),
        ] {
            let query = Query { user: Some(user.into()), ..Query::default() };
            let about = About::from_query(uid, &query).map(|about| about.text());
            let about = about.as_deref().map_err(|refusal| refusal.name);
            assert_eq!(about, expected, "{uid} {user}");
        }
        assert_eq!([0, 5].map(|uid| shown(uid, &Query::default()).unwrap()), [None, Some(5)]);
    }

    #[test]
    fn a_policy_changes_what_it_names() {
        let before = Policy::default();
        let lifetime = Duration::from_secs(1);
        let off = Policy { sharing: Sharing::Off, lifetime, early_data: false };
        for (body, after) in [
            ("{}", before),
            (r#"{"sharing": "off", "lifetime_ms": 1000, "early_data": false}"#, off),
        ] {
            assert_eq!(Wanted::read(body.as_bytes()).unwrap().over(before), after, "{body}");
        }
        for wrong in ["", "[]", r#"{"sharing": "some"}"#, r#"{"shared": "off"}"#] {
            assert!(Wanted::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn contexts_are_named_by_their_label() {
        assert_eq!(context(7, "").unwrap(), Context::user(7));
        assert_eq!(context(7, "a%20b").unwrap().label.as_deref(), Some("a b"));
        assert!(context(7, "a%00b").is_err() && context(7, &"x".repeat(256)).is_err());
    }
}
