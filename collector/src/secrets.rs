//! Keeps secrets out of whatever is written or shown, also where a server repeats them. The last net: it knows
//! the secrets themselves, not where they might turn up.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::sync::OnceLock;
use tokscope_shared::field::{Json, Leaf};
use tokscope_shared::report::Report;

/// What may not be shown. `Debug` shows nothing.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Shorter texts are no secrets, and would be found everywhere.
const SHORTEST: usize = 6;
const SHOWN: &str = "***";

impl Secrets {
    /// The key that was given, those of the environment, and the password in a `--host` URL, each in every form
    /// in which it is sent.
    pub fn of(host: &str, api_key: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Self {
        let mut found: Vec<String> = api_key.map(str::to_owned).into_iter().collect();
        found.extend(["TOKSCOPE_API_KEY", "VLLM_API_KEY"].into_iter().filter_map(env));
        // Whatever stands before the last @ may hold a password, however the rest is written.
        if let Some((before, _)) = host.rsplit_once('@') {
            let user = match before.split_once(':') {
                Some((_, rest)) if rest.starts_with(['/', '\\']) => rest.trim_start_matches(['/', '\\']),
                _ => before,
            };
            found.push(STANDARD.encode(user));
            found.extend(user.split_once(':').map(|(_, password)| password.to_owned()));
        }
        found.retain(|secret| secret.len() >= SHORTEST);
        // The longest first: one may hold another.
        found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Secrets(found)
    }

    /// The text without them.
    pub fn scrub(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, SHOWN))
    }

    /// The report without them, in every text that it holds.
    pub fn scrub_report(&self, report: &mut Report) {
        report.each_leaf("", &mut |_, leaf| {
            if let Leaf::Text(text) = leaf
                && self.0.iter().any(|secret| text.contains(secret))
            {
                *text = self.scrub(text);
            }
        });
    }

    /// From now on nothing that the program prints shows them. The first call counts.
    pub fn hide_from_terminal(&self) {
        // A second run in one process would have to come with the same secrets.
        let _ = HIDDEN.set(self.clone());
    }
}

static HIDDEN: OnceLock<Secrets> = OnceLock::new();

/// The first characters of a text from outside. What is secret is taken out before the cut: half a key would not
/// be known again.
pub fn beginning(text: &str, characters: usize) -> String {
    let text = HIDDEN.get().map_or_else(|| text.to_owned(), |secrets| secrets.scrub(text));
    text.chars().take(characters).collect()
}

/// A text as it may be printed: without secrets, and without the characters by which a server could steer the terminal
/// or turn the direction of what is read.
pub fn printable(text: &str) -> String {
    let text = HIDDEN.get().map_or_else(|| text.to_owned(), |secrets| secrets.scrub(text));
    text.replace(|c: char| (c.is_control() && c != '\n') || turns_direction(c), "\u{fffd}")
}

/// Embeddings, overrides and isolates of bidirectional text.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_form_in_which_it_is_sent() {
        let env = |name: &str| (name == "VLLM_API_KEY").then(|| "from-env".to_owned());
        let secrets = Secrets::of("http://user:p4ss/w0rd@localhost:1", Some("sk-SECRET123"), env);
        let text = format!("Incorrect API key: sk-SECRET123, from-env, p4ss/w0rd, {}", STANDARD.encode("user:p4ss/w0rd"));
        assert_eq!(secrets.scrub(&text), "Incorrect API key: ***, ***, ***, ***");
        assert!(!format!("{secrets:?}").contains("SECRET"));
        for host in ["http:/user:p4ssw0rd@localhost:1", "http:\\\\user:p4ssw0rd@localhost:1", "user:p4ssw0rd@localhost"] {
            assert!(!Secrets::of(host, None, |_| None).scrub(host).contains("p4ssw0rd"), "{host}");
        }
        assert_eq!(Secrets::of("localhost", None, |_| None).scrub("localhost"), "localhost");
    }

    #[test]
    fn a_server_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\r\nc"), "a\u{fffd}[31mb\u{fffd}\nc");
        assert_eq!(printable("gpt\u{202e}4-x"), "gpt\u{fffd}4-x");
    }
}
