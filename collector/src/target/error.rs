//! What can be wrong with a server before anything is measured: each one sentence with what to do.

/// Why a server can't be measured.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// `--host` and `--port` give no address.
    #[error("--host '{host}' is not an address ({reason}); give a host name, host:port or a http(s) URL")]
    BadAddress {
        /// As given, without credentials.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `--ca-cert` is no file of certificates.
    #[error("--ca-cert {}: {reason}; give a PEM file with the certificates of the authorities to trust", file.display())]
    BadRoots {
        /// As given.
        file: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody listens.
    #[error("nothing listens at {url}; start the server, give its --host and --port, or wait for it with --wait-ready SECONDS")]
    Refused {
        /// Asked.
        url: String,
    },
    /// The name is unknown.
    #[error("the host of {url} is unknown ({reason}); check --host")]
    Unresolved {
        /// Asked.
        url: String,
        /// The resolver's words.
        reason: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {seconds} s; check --host and --port, or wait until the server has loaded (--wait-ready SECONDS)")]
    NoAnswer {
        /// Asked.
        url: String,
        /// The limit.
        seconds: u64,
    },
    /// Something is there, but no HTTP comes back.
    #[error("what listens at {url} does not speak HTTP ({reason}); check --port, and http against https")]
    NotHttp {
        /// Asked.
        url: String,
        /// What happened.
        reason: String,
    },
    /// It wants a key, or another one.
    #[error("{url} refuses the key with HTTP {status}; set --api-key or TOKSCOPE_API_KEY to one it accepts")]
    Unauthorized {
        /// Asked.
        url: String,
        /// Its status.
        status: u16,
    },
    /// It answers with an error.
    #[error("{url} answers with HTTP {status}{detail}; check --host and --port: an OpenAI-compatible server lists its models there")]
    Status {
        /// Asked.
        url: String,
        /// Its status.
        status: u16,
        /// The beginning of its words, in brackets, or empty.
        detail: String,
    },
    /// It sends us elsewhere.
    #[error("{url} redirects to {location}; give that address as --host")]
    Redirect {
        /// Asked.
        url: String,
        /// Where to.
        location: String,
    },
    /// A web page.
    #[error("{url} answers with a web page instead of JSON; --host and --port point to a web server, not to an inference server")]
    Html {
        /// Asked.
        url: String,
    },
    /// Something else.
    #[error("{url} answers with something that is not what was asked for ({reason}); check --host and --port")]
    NotJson {
        /// Asked.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// No model.
    #[error("the server lists no models at {url}; load one and run again")]
    NoModels {
        /// Asked.
        url: String,
    },
    /// Not that model.
    #[error("the server does not list a model '{model}'; it has {available}")]
    UnknownModel {
        /// Asked for.
        model: String,
        /// What it has, quoted and comma-separated.
        available: String,
    },
    /// It is there and has not loaded its model.
    #[error("the server is still loading ({url} answers with HTTP 503); wait, or give --wait-ready SECONDS")]
    Loading {
        /// Asked.
        url: String,
    },
    /// The time of `--wait-ready` is over.
    #[error("the server was not ready after {seconds} s (--wait-ready): {reason}")]
    NotReady {
        /// Waited.
        seconds: u64,
        /// What it was like at the end.
        reason: Box<TargetError>,
    },
    /// Neither this route nor this model.
    #[error("{url} answers with HTTP 404{detail}; check --model, and that the server has this route")]
    NoChat {
        /// Asked.
        url: String,
        /// The beginning of its words, in brackets, or empty.
        detail: String,
    },
    /// Too many requests.
    #[error(
        "{url} answers with HTTP 429, too many requests{detail}; wait, or use a key with a higher limit: it would limit the measurement"
    )]
    TooMany {
        /// Asked.
        url: String,
        /// The beginning of its words, in brackets, or empty.
        detail: String,
    },
    /// A generation fails.
    #[error("{url} answers a first short request with HTTP {status}{detail}; look into the server's log")]
    ChatFailed {
        /// Asked.
        url: String,
        /// Its status.
        status: u16,
        /// The beginning of its words, in brackets, or empty.
        detail: String,
    },
    /// It takes nothing.
    #[error("{url} refuses a first short request with HTTP {status}{detail}, whichever options are left out")]
    Refuses {
        /// Asked.
        url: String,
        /// Its status.
        status: u16,
        /// The beginning of its words, in brackets, or empty.
        detail: String,
    },
    /// It answers in one piece.
    #[error("{url} answers in one piece although a stream was asked for; without a stream there is nothing to measure")]
    NotStreaming {
        /// Asked.
        url: String,
    },
    /// The HTTP client itself can't be made.
    #[error("the HTTP client can't be set up ({reason}); an API key must be plain ASCII without line ends")]
    Client {
        /// What is wrong.
        reason: String,
    },
}

impl TargetError {
    /// Whether a server that starts shows itself like this.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::NoAnswer { .. } | Self::NoModels { .. } | Self::Loading { .. } => true,
            // What stands before a server answers for it.
            Self::Status { status, .. } => matches!(status, 502..=504),
            // A forwarded port takes the connection and drops it.
            Self::NotHttp { reason, .. } => ["reset", "closed", "broken pipe"].iter().any(|sign| reason.to_lowercase().contains(sign)),
            _ => false,
        }
    }
}
