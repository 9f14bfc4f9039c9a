//! From `--host` and `--port` to a base address, by the predecessor's rules. It resolves nothing.

use reqwest::Url;

use super::error::TargetError;

const DEFAULT_PORT: u16 = 5000;

/// `http` or `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// With TLS.
    Https,
}

/// Where the server is. Holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: Scheme,
    host: String,
    port: u16,
    base_path: String,
    display: String,
}

/// An address and the credentials that stood in it.
pub(crate) type Parsed = (Address, Option<(String, String)>);

impl Address {
    /// A host name, address or URL, and a port. A URL keeps its base path (without a `/v1` at its
    /// end, which every path of ours begins with) and gets the port only if it has none; else the
    /// port is 5000 unless given.
    pub(crate) fn parse(host: &str, port: Option<u16>) -> Result<Parsed, TargetError> {
        let host = host.trim();
        let host = if host.is_empty() { "localhost" } else { host };
        let is_url = host.contains("://");
        let text = if is_url {
            host.to_owned()
        } else {
            // A bare IPv6 address needs brackets to stand before a port.
            let bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
            let name = if bare_v6 { format!("[{host}]") } else { host.to_owned() };
            format!("http://{name}")
        };
        let shown = without_credentials(host);
        let bad = |reason: String| TargetError::BadAddress { host: shown.clone(), reason };
        let mut url = Url::parse(&text).map_err(|e| bad(e.to_string()))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(bad(format!("'{other}' is not http or https"))),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("a query or fragment makes no sense here".into()));
        }
        let user = (!url.username().is_empty() || url.password().is_some()).then(|| {
            let decode = |s: &str| percent_decode(s);
            (decode(url.username()), decode(url.password().unwrap_or_default()))
        });
        // The parser drops a port that is the scheme's own, so the text is asked.
        let given_port = url.port().or_else(|| explicit_default_port(&text));
        let port = given_port.or(port).unwrap_or(match (is_url, scheme) {
            (true, Scheme::Http) => 80,
            (true, Scheme::Https) => 443,
            (false, _) => DEFAULT_PORT,
        });
        if port == 0 {
            return Err(bad("port 0 is no port".into()));
        }
        if url.path().contains('@') {
            return Err(bad("there is an @ behind the host: write a / in a name or password as %2F".into()));
        }
        url.set_path(url.path().trim_end_matches('/').to_owned().as_str());
        let path = url.path().trim_end_matches('/');
        // What people copy is the address of the API, or of a route of it.
        let routes = ["/v1/chat/completions", "/v1/completions", "/v1/models", "/v1"];
        let base_path = routes.iter().find_map(|route| path.strip_suffix(route)).unwrap_or(path).to_owned();
        let Some(host) = url.host_str().map(str::to_owned) else {
            return Err(bad("there is no host name in it".into()));
        };
        let display = if is_url { shown.trim_end_matches('/').to_owned() } else { format!("{host}:{port}") };
        let address = Self { scheme, host, port, base_path, display };
        Ok((address, user))
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name or address; IPv6 in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What stands before `/v1/...` in every path; empty or with a leading slash.
    #[must_use]
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// For `metadata.server`: the URL as given (without credentials), else `host:port`.
    #[must_use]
    pub fn display(&self) -> &str {
        &self.display
    }

    /// The `Host` header: with the port unless it is the scheme's own.
    #[must_use]
    pub fn host_header(&self) -> String {
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    /// The full URL of a path that begins with a slash, behind the base path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        self.url_of_path(&format!("{}{path}", self.base_path))
    }

    /// The full URL of a path that begins with a slash and has the base path in it.
    #[must_use]
    pub(super) fn url_of_path(&self, path: &str) -> String {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let Self { host, port, .. } = self;
        format!("{scheme}://{host}:{port}{path}")
    }

    /// Whether it is this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let name = self.host.trim_start_matches('[').trim_end_matches(']');
        let by_name = name == "localhost" || name.ends_with(".localhost");
        by_name || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
    }
}

impl std::str::FromStr for Address {
    type Err = TargetError;

    /// As `--host` without `--port`; credentials in it are dropped.
    fn from_str(host: &str) -> Result<Self, TargetError> {
        Self::parse(host, None).map(|(address, _)| address)
    }
}

/// What may be shown of a `--host` text: everything before the last `@` but the scheme is dropped, and so is the
/// query; a text that is no address may hold a password anywhere there.
pub(super) fn without_credentials(text: &str) -> String {
    // The query goes last: a password may hold its mark.
    let (before, rest) = text.rsplit_once('@').unwrap_or(("", text));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let scheme = before.split_once("://").map_or_else(String::new, |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}{rest}")
}

fn explicit_default_port(url: &str) -> Option<u16> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split('/').next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    let after_host = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    after_host.rsplit_once(':')?.1.parse().ok()
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).filter(|_| b == b'%');
        let hex = hex.and_then(|h| std::str::from_utf8(h).ok());
        if let Some(value) = hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            out.push(value);
            at += 3;
        } else {
            out.push(b);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn host_and_port_become_a_base_address() {
        // host, port, url of /x, display, Host header
        let table = [
            ("", None, "http://localhost:5000/x", "localhost:5000", "localhost:5000"),
            ("gpu1", None, "http://gpu1:5000/x", "gpu1:5000", "gpu1:5000"),
            ("gpu1", Some(8000), "http://gpu1:8000/x", "gpu1:8000", "gpu1:8000"),
            ("gpu1:81", None, "http://gpu1:81/x", "gpu1:81", "gpu1:81"),
            ("::1", Some(9), "http://[::1]:9/x", "[::1]:9", "[::1]:9"),
            ("http://a", None, "http://a:80/x", "http://a", "a"),
            ("http://a/", Some(81), "http://a:81/x", "http://a", "a:81"),
            ("http://a:80", Some(81), "http://a:80/x", "http://a:80", "a"),
            ("https://a", None, "https://a:443/x", "https://a", "a"),
            ("https://a/api/", None, "https://a:443/api/x", "https://a/api", "a"),
            ("https://a/api/v1", None, "https://a:443/api/x", "https://a/api/v1", "a"),
            ("http://a:1/v1/", None, "http://a:1/x", "http://a:1/v1", "a:1"),
            ("https://a/api/v1/chat/completions", None, "https://a:443/api/x", "https://a/api/v1/chat/completions", "a"),
            ("https://a/v1beta", None, "https://a:443/v1beta/x", "https://a/v1beta", "a"),
            ("https://u:p@a:8/b", None, "https://a:8/b/x", "https://a:8/b", "a:8"),
        ];
        for (host, port, url, display, header) in table {
            let (a, _) = Address::parse(host, port).unwrap();
            assert_eq!(a.url("/x"), url, "{host}");
            assert_eq!(a.display(), display, "{host}");
            assert_eq!(a.host_header(), header, "{host}");
        }
    }

    #[test]
    fn user_and_password_leave_the_address() {
        let (a, user) = Address::parse("http://me:p%40ss@h:1", None).unwrap();
        assert_eq!(user, Some(("me".into(), "p@ss".into())));
        assert!(!format!("{a:?}").contains("p%40ss"));
        let e = Address::parse("http://me:secret@h:1/?q", None).unwrap_err();
        assert!(!e.to_string().contains("secret"), "{e}");
        let e = Address::parse("ftp://me:secret@h", None).unwrap_err();
        assert!(!e.to_string().contains("secret"), "{e}");
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for host in ["ftp://a", "http://", "http://a:99999", "a b", "http://a?x=1", "http://user:1234/w0rd@h"] {
            assert!(matches!(Address::parse(host, None), Err(TargetError::BadAddress { .. })), "{host}");
        }
    }

    #[test]
    fn loopback_is_known() {
        for (host, want) in [("localhost", true), ("127.3.0.1", true), ("::1", true), ("0.0.0.0", true), ("10.0.0.1", false), ("h", false)]
        {
            assert_eq!(Address::parse(host, None).unwrap().0.is_loopback(), want, "{host}");
        }
    }
}
