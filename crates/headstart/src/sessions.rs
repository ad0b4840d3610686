//! `headstart sessions`: what the agent keeps for programs, asked of it over its socket.

mod client;
pub mod options;
mod table;

use std::process::ExitCode;

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::base::failure::Failure;
use crate::base::output;
use crate::sessions::options::{
    SessionsCommand, SessionsForgetOptions, SessionsOptions, SessionsPolicyOptions,
};
use client::{Call, ask};

/// Does what is asked.
pub(crate) async fn run(options: &SessionsOptions) -> Result<ExitCode, Failure> {
    let (call, as_text): (_, fn(&Value) -> String) = match &options.command {
        SessionsCommand::List(_) => (Call::new(Method::GET, "/sessions"), table::sessions),
        SessionsCommand::Forget(options) => {
            (forget_call(options), |response| format!("forgotten: {}\n", response["forgotten"]))
        }
        SessionsCommand::Policy(options) => (policy_call(options), table::policies),
    };
    let response = ask(&options.agent, &call).await?;
    let text = if options.agent.json { format!("{response:#}\n") } else { as_text(&response) };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn forget_call(options: &SessionsForgetOptions) -> Call {
    if options.end {
        let label = options.context.as_deref().unwrap_or_default();
        return Call::new(Method::DELETE, format!("/contexts/{}", encoded(label)));
    }
    let pairs =
        [("server", &options.server), ("context", &options.context), ("user", &options.user)];
    let pairs = pairs.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let pairs: Vec<_> = pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    Call::new(Method::DELETE, format!("/sessions?{}", pairs.join("&")))
}

fn policy_call(options: &SessionsPolicyOptions) -> Call {
    let label = options.context.as_deref();
    let path = format!("/policies/{}", encoded(label.unwrap_or_default()));
    let wanted = wanted(options);
    if options.default {
        Call::new(Method::DELETE, path)
    } else if !wanted.is_empty() {
        Call { body: Value::Object(wanted).to_string(), ..Call::new(Method::PUT, path) }
    } else if label.is_some() {
        Call::new(Method::GET, path)
    } else {
        Call::new(Method::GET, "/policies")
    }
}

/// Returns the changes to a policy, as the body of a request.
fn wanted(options: &SessionsPolicyOptions) -> Map<String, Value> {
    let lifetime = options.lifetime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let all = [
        ("sharing", options.sharing.map(|sharing| sharing.name().into())),
        ("lifetime_ms", lifetime.map(Value::from)),
        ("early_data", options.early_data.map(Value::from)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sessions::options::SharingName;

    #[test]
    fn the_request_names_the_sessions_to_forget() {
        let none = SessionsForgetOptions { server: None, context: None, end: false, user: None };
        assert_eq!(forget_call(&none).path, "/sessions?");
        let context = Some("a b/".to_owned());
        let one = SessionsForgetOptions {
            server: Some("a.example".into()),
            context: context.clone(),
            ..none.clone()
        };
        assert_eq!(forget_call(&one).path, "/sessions?server=a%2Eexample&context=a%20b%2F");
        let end = SessionsForgetOptions { context, end: true, ..none };
        assert_eq!(forget_call(&end).path, "/contexts/a%20b%2F");
    }

    fn call(options: &SessionsPolicyOptions) -> String {
        let Call { method, path, body } = policy_call(options);
        format!("{method} {path} {body}")
    }

    #[test]
    fn a_policy_is_shown_set_or_taken_away() {
        let none = SessionsPolicyOptions {
            context: None,
            sharing: None,
            lifetime: None,
            early_data: None,
            default: false,
        };
        assert_eq!(call(&none), "GET /policies ");
        let work = SessionsPolicyOptions { context: Some("work".into()), ..none.clone() };
        assert_eq!(call(&work), "GET /policies/work ");
        let default = SessionsPolicyOptions { default: true, ..work.clone() };
        assert_eq!(call(&default), "DELETE /policies/work ");
        let off = SessionsPolicyOptions { sharing: Some(SharingName::Off), ..none.clone() };
        assert_eq!(call(&off), r#"PUT /policies/ {"sharing":"off"}"#);
        let short = SessionsPolicyOptions { lifetime: Some(Duration::from_secs(1)), ..none };
        assert_eq!(call(&short), r#"PUT /policies/ {"lifetime_ms":1000}"#);
    }
}
