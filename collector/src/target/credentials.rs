//! The key or password for a server. It never shows itself.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// How requests authenticate. `Debug` tells the kind and nothing of the secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    header: Option<String>,
    source: Option<&'static str>,
}

impl Credentials {
    /// No authentication.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A key as `Bearer`; `source` says where it was given, e.g. `--api-key`.
    #[must_use]
    pub fn bearer(key: &str, source: &'static str) -> Self {
        Self { header: Some(format!("Bearer {key}")), source: Some(source) }
    }

    /// User and password of a URL.
    #[must_use]
    pub fn basic(user: &str, password: &str) -> Self {
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        Self { header: Some(format!("Basic {encoded}")), source: Some("--host") }
    }

    /// The option, else `TOKSCOPE_API_KEY`, else `VLLM_API_KEY`, as `env` tells; empty ones count
    /// as absent.
    #[must_use]
    pub fn choose(option: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Self {
        if let Some(key) = option.filter(|k| !k.is_empty()) {
            return Self::bearer(key, "--api-key");
        }
        for name in ["TOKSCOPE_API_KEY", "VLLM_API_KEY"] {
            if let Some(key) = env(name).filter(|k| !k.is_empty()) {
                return Self::bearer(&key, name);
            }
        }
        Self::none()
    }

    /// The value of the `Authorization` header: a secret.
    #[must_use]
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Where the secret was given; not the secret.
    #[must_use]
    pub fn source(&self) -> Option<&'static str> {
        self.source
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.source.unwrap_or("none"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "TOKSCOPE_API_KEY" => Some("tok-secret".to_owned()),
            "VLLM_API_KEY" => Some("vllm-secret".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn the_option_wins_then_our_variable_then_vllms() {
        let header = |c: &Credentials| c.header().map(str::to_owned);
        let c = Credentials::choose(Some("opt"), env);
        assert_eq!(header(&c).as_deref(), Some("Bearer opt"));
        let c = Credentials::choose(None, env);
        assert_eq!(header(&c).as_deref(), Some("Bearer tok-secret"));
        let c = Credentials::choose(None, |n| env(n).filter(|_| n == "VLLM_API_KEY"));
        assert_eq!(header(&c).as_deref(), Some("Bearer vllm-secret"));
        let c = Credentials::choose(Some(""), |_| Some(String::new()));
        assert_eq!(c, Credentials::none());
    }

    #[test]
    fn debug_shows_where_the_secret_is_from_and_not_the_secret() {
        let c = Credentials::choose(None, env);
        assert_eq!(format!("{c:?}"), "Credentials(TOKSCOPE_API_KEY)");
        let c = Credentials::basic("aladdin", "opensesame");
        assert!(!format!("{c:?}").contains("sesame"));
        assert_eq!(c.header(), Some("Basic YWxhZGRpbjpvcGVuc2VzYW1l"));
    }
}
