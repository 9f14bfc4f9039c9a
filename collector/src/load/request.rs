//! Requests as bytes, built before they are due: a head, a body's beginning that all requests of a
//! cell share and never copy, and a short end of their own.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::target::{Address, Credentials};

/// What a request took that others may have where it is never sent: dropped with the request, it gives that back.
pub trait Taken: Send + std::fmt::Debug {
    /// The request is on its way.
    fn is_sent(&mut self);
}

/// A request ready to be sent.
#[derive(Debug)]
pub struct PreparedRequest {
    /// The `x-request-id` in its head.
    pub id: String,
    /// Request line and headers.
    pub head: Vec<u8>,
    /// The body's beginning.
    pub shared: Bytes,
    /// The body's end.
    pub tail: Vec<u8>,
    /// What it took, where that is given back.
    pub taken: Option<Box<dyn Taken>>,
}

/// Where requests come from. Called when a request is prepared, ahead of the time it is due.
pub trait RequestSource: Send + Sync {
    /// The request number `ordinal` of stream `stream`, both from 0.
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest;
}

/// What all requests to one route have in common.
#[derive(Clone)]
pub struct RequestHead {
    /// Up to and without `x-request-id`.
    common: String,
}

impl std::fmt::Debug for RequestHead {
    /// It holds the key, so nothing is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestHead(..)")
    }
}

impl RequestHead {
    /// A POST of JSON to `path` (with a leading slash, without the base path).
    #[must_use]
    pub fn post(address: &Address, credentials: &Credentials, path: &str) -> Self {
        let mut common = format!(
            "POST {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tokscope/{}\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n",
            address.base_path(),
            address.host_header(),
            env!("CARGO_PKG_VERSION"),
        );
        if let Some(value) = credentials.header() {
            // Writing into a String can't fail.
            let _ = write!(common, "Authorization: {value}\r\n");
        }
        Self { common }
    }

    /// The request with this body.
    #[must_use]
    pub fn with_body(&self, id: String, shared: Bytes, tail: Vec<u8>) -> PreparedRequest {
        let length = shared.len() + tail.len();
        let head = format!("{}x-request-id: {id}\r\nContent-Length: {length}\r\n\r\n", self.common);
        PreparedRequest { id, head: head.into_bytes(), shared, tail, taken: None }
    }
}
