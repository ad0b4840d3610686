//! Answers to requests for the resources of sites.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headstart_tls::{EarlyData, Facts, ServerContext};
use hyper::header::{self, GetAll, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;

/// State that all connections of an origin share.
pub(super) struct Shared {
    pub(super) tls: ServerContext,
    pub(super) answers: HashMap<(String, String), Answer>,
    pub(super) early_hints: bool,
    pub(super) connections: Arc<Semaphore>,
    /// Longest time that a connection may be idle.
    pub(super) idle: Duration,
    pub(super) requests: AtomicU64,
    pub(super) handshakes: AtomicU64,
    pub(super) resumed: AtomicU64,
    pub(super) early: AtomicU64,
}

/// Answer to a request for one path.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) tag: HeaderValue,
    pub(super) body: Bytes,
    pub(super) think: Duration,
    /// Target of a redirect, by language.
    pub(super) by_language: Vec<(&'static str, HeaderValue)>,
}

impl Shared {
    /// Counts a handshake that is done, or at its early data.
    pub(super) fn count(&self, facts: &Facts) {
        let is_early = facts.early_data == EarlyData::Accepted;
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(facts.resumed.into(), Ordering::Relaxed);
        self.early.fetch_add(is_early.into(), Ordering::Relaxed);
    }

    /// Answers a request, once what it asks for has been thought about.
    pub(super) async fn respond<B>(&self, request: &Request<B>) -> Response<Bytes> {
        let Some(answer) = self.answer(request) else { return empty(StatusCode::NOT_FOUND) };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return empty(StatusCode::METHOD_NOT_ALLOWED);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(answer.think).await;
        answer.to(request)
    }

    /// Returns the hints to send ahead of the answer to a request, if there are any.
    pub(super) fn early_hints<B>(&self, request: &Request<B>) -> Option<GetAll<'_, HeaderValue>> {
        let answer = self.answer(request).filter(|_| self.early_hints)?;
        answer.headers.contains_key(header::LINK).then(|| answer.headers.get_all(header::LINK))
    }

    fn answer<B>(&self, request: &Request<B>) -> Option<&Answer> {
        let host = request.uri().host().map(str::to_owned).or_else(|| {
            let host = request.headers().get(header::HOST)?.to_str().ok()?;
            Some(host.rsplit_once(':').map_or(host, |(host, _)| host).to_owned())
        });
        let host = host.unwrap_or_default().to_ascii_lowercase();
        self.answers.get(&(host, request.uri().path().to_owned()))
    }
}

impl Answer {
    fn to<B>(&self, request: &Request<B>) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        let conditions = request.headers();
        if self.headers.contains_key(header::ETAG)
            && conditions.get(header::IF_NONE_MATCH) == Some(&self.tag)
        {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Bytes::new();
        }
        let accepted =
            conditions.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        if let Some(location) = self.location(accepted.unwrap_or_default()) {
            response.headers_mut().insert(header::LOCATION, location.clone());
        }
        response
    }

    /// Returns the location for the first language that the client names and that is there.
    /// Browsers name them in the order of their weights.
    pub(super) fn location(&self, accepted: &str) -> Option<&HeaderValue> {
        let mut named = accepted.split(',').filter_map(|range| range.split([';', '-']).next());
        named.find_map(|name| {
            let mut all = self.by_language.iter();
            let (_, location) = all.find(|(lang, _)| name.trim().eq_ignore_ascii_case(lang))?;
            Some(location)
        })
    }
}

fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
