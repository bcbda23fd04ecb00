//! Removes credentials from error messages.
//!
//! A server, or a proxy in front of it, may quote a request in its response, headers included, and error messages go
//! into statuses, events and logs. A [`Redactor`] knows the credentials of one connection; bearer tokens and JSON web
//! tokens of others are recognized by their form.
//!
//! ```text
//! unknown token "abcdef0123456789.ghijkl"  ──►  unknown token "[hidden]"
//! Authorization: Bearer of-someone-else    ──►  Authorization: Bearer [hidden]
//! ```

use std::sync::Arc;

use super::error::{CallError, truncate};

/// Replaces a credential.
const HIDDEN: &str = "[hidden]";
/// A word that contains this many consecutive characters of a credential is hidden: messages are truncated, and a part
/// of a credential is secret too.
const PART_MIN: usize = 12;
/// The scheme of an `Authorization` header; the word after it is a credential.
const SCHEME: &str = "bearer";
/// The beginning of a JSON web token: the base64 of `{"`. A service account token changes while the process runs, so it
/// cannot be compared with a known one.
const WEB_TOKEN: &str = "eyJ";
/// The minimum length of a web token.
const WEB_TOKEN_MIN: usize = 40;

/// The credentials of one connection, to be removed from its errors.
#[derive(Clone, Default)]
pub(in crate::adapters) struct Redactor(Arc<[String]>);

// === impl Redactor ===

impl Redactor {
    pub(in crate::adapters) fn new(credentials: Vec<String>) -> Self {
        let credentials = credentials.into_iter().filter(|text| !text.is_empty());
        Self(credentials.collect())
    }

    /// The error without credentials in its message.
    pub(in crate::adapters) fn redact(&self, error: CallError) -> CallError {
        match error {
            CallError::Status { code, message } => CallError::Status {
                code,
                message: self.redact_text(&message),
            },
            CallError::Transport(text) => CallError::Transport(self.redact_text(&text)),
            CallError::Response(text) => CallError::Response(self.redact_text(&text)),
            CallError::Request(text) => CallError::Request(self.redact_text(&text)),
            CallError::Timeout(_)
            | CallError::NoSlot { .. }
            | CallError::CircuitOpen { .. }
            | CallError::NotLeader => error,
        }
    }

    fn redact_text(&self, text: &str) -> String {
        // Truncated first: the message may be as long as the limit of a response.
        let text = truncate(text);
        let mut redacted = String::with_capacity(text.len());
        let mut after_scheme = false;
        for piece in text.split_inclusive(|c| !is_credential_char(c)) {
            let word = piece.trim_end_matches(|c| !is_credential_char(c));
            if !word.is_empty() {
                let hide = after_scheme || self.is_credential(word);
                redacted.push_str(if hide { HIDDEN } else { word });
                after_scheme = word.eq_ignore_ascii_case(SCHEME);
            }
            redacted.push_str(piece.get(word.len()..).unwrap_or_default());
        }
        redacted
    }

    /// Whether a word contains a credential or a recognizable part of one.
    fn is_credential(&self, word: &str) -> bool {
        let is_web_token = word.len() >= WEB_TOKEN_MIN && word.contains(WEB_TOKEN);
        let parts = || word.as_bytes().windows(PART_MIN);
        let contains_part_of = |secret: &String| match secret.len() {
            // Ordinary words may contain a secret this short by chance.
            ..PART_MIN => word.split('=').any(|part| part == secret),
            _ => parts().any(|part| secret.as_bytes().windows(PART_MIN).any(|own| own == part)),
        };
        is_web_token || self.0.iter().any(contains_part_of)
    }
}

/// Whether a credential may contain a character (RFC 6750, `b64token`).
fn is_credential_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_whole_in_part_and_between_other_words() {
        let token = "abcdef0123456789.ghijkl";
        let web = format!("eyJhbGciOi.{}", "x".repeat(40));
        let redactor = Redactor::new(vec![token.to_owned(), "s3cret".to_owned()]);
        for (said, shown) in [
            (
                "pods \"web-0\" not found",
                "pods \"web-0\" not found".to_owned(),
            ),
            ("", String::new()),
            (
                "bad token abcdef0123456789.ghijkl!",
                "bad token [hidden]!".to_owned(),
            ),
            (
                "{\"authorization\":\"Bearer of-others\"}",
                "{\"authorization\":\"Bearer [hidden]\"}".to_owned(),
            ),
            ("BEARER  a, b", "BEARER  [hidden], b".to_owned()),
            ("cut: cdef01234567", "cut: [hidden]".to_owned()),
            ("cut: cdef0123456", "cut: cdef0123456".to_owned()),
            ("?token=abcdef0123456789.ghijkl&x", "?[hidden]&x".to_owned()),
            (
                "\u{e4}\u{f6}: s3cret \u{fc}",
                "\u{e4}\u{f6}: [hidden] \u{fc}".to_owned(),
            ),
            (&*format!("jwt={web}"), HIDDEN.to_owned()),
        ] {
            assert_eq!(redactor.redact_text(said), shown, "{said}");
        }
        assert_eq!(Redactor::default().redact_text("any words"), "any words");
        let endless = "A".repeat(32 << 20);
        assert_eq!(redactor.redact_text(&endless), "A".repeat(500));
    }
}
