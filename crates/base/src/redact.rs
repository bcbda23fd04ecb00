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

/// Maximum number of characters of a server's message that are kept, because messages go into logs and statuses.
const MESSAGE_MAX: usize = 500;
/// Replaces a credential.
const HIDDEN: &str = "[hidden]";
/// A word that contains this many consecutive characters of a credential is hidden: messages are truncated, and a part
/// of a credential is secret too.
const PART_MIN: usize = 12;
/// The schemes of an `Authorization` header; the word after one is a credential.
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// The beginning of a JSON web token: the base64 of `{"`. A service account token changes while the process runs, so it
/// cannot be compared with a known one.
const WEB_TOKEN: &str = "eyJ";
/// The minimum length of a web token.
const WEB_TOKEN_MIN: usize = 40;

/// The credentials of one connection, to be removed from its errors.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Redactor of {} credentials", _0.len())]
pub struct Redactor(Arc<[String]>);

// === impl Redactor ===

impl Redactor {
    /// A redactor of these credentials; empty ones are none.
    pub fn new(credentials: Vec<String>) -> Self {
        let credentials = credentials.into_iter().filter(|text| !text.is_empty());
        Self(credentials.collect())
    }

    /// The beginning of a message, without credentials.
    pub fn redact(&self, text: &str) -> String {
        // Truncated after phrases are hidden, which are not recognized in part, and before words are, which are.
        let text = self.without_phrases(text);
        let text = truncate(&text);
        let mut redacted = String::with_capacity(text.len());
        let mut after_scheme = false;
        for piece in text.split_inclusive(|c| !is_credential_char(c)) {
            let word = piece.trim_end_matches(|c| !is_credential_char(c));
            if !word.is_empty() {
                let hide = after_scheme || self.is_credential(word);
                redacted.push_str(if hide { HIDDEN } else { word });
                after_scheme = SCHEMES.iter().any(|one| word.eq_ignore_ascii_case(one));
            }
            redacted.push_str(piece.get(word.len()..).unwrap_or_default());
        }
        redacted
    }

    /// The text without credentials of several words, as passwords may be: those of one word are found word by word.
    fn without_phrases(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.iter() {
            if !secret.chars().all(is_credential_char) {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
        text
    }

    /// True if a word contains a credential or a recognizable part of one.
    fn is_credential(&self, word: &str) -> bool {
        let is_web_token = word.len() >= WEB_TOKEN_MIN && word.contains(WEB_TOKEN);
        is_web_token || self.0.iter().any(|secret| has_part_of(word, secret))
    }
}

fn has_part_of(word: &str, secret: &str) -> bool {
    // Ordinary words may contain a secret this short by chance. It is found in `password=SECRET`, which is one word.
    if secret.len() < PART_MIN {
        return word.split('=').any(|part| part == secret);
    }
    let mut parts = word.as_bytes().windows(PART_MIN);
    parts.any(|part| secret.as_bytes().windows(PART_MIN).any(|own| own == part))
}

/// The part of a server's message that is kept.
pub fn truncate(message: &str) -> &str {
    let end = message.char_indices().nth(MESSAGE_MAX);
    end.map_or(message, |(end, _)| message.get(..end).unwrap_or_default())
}

/// True if a token may contain a character (RFC 6750, `b64token`).
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
        let secrets = [token, "s3cret", "two words & more"].map(str::to_owned);
        let redactor = Redactor::new(secrets.into());
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
            ("basic YTpi!", "basic [hidden]!".to_owned()),
            ("<two words & more>", "<[hidden]>".to_owned()),
            ("two words", "two words".to_owned()),
            (
                &*format!("{}two words & more", "-".repeat(495)),
                format!("{}[hidd", "-".repeat(495)),
            ),
            ("cut: cdef01234567", "cut: [hidden]".to_owned()),
            ("cut: cdef0123456", "cut: cdef0123456".to_owned()),
            ("?token=abcdef0123456789.ghijkl&x", "?[hidden]&x".to_owned()),
            (
                "\u{e4}\u{f6}: s3cret \u{fc}",
                "\u{e4}\u{f6}: [hidden] \u{fc}".to_owned(),
            ),
            (&*format!("jwt={web}"), HIDDEN.to_owned()),
        ] {
            assert_eq!(redactor.redact(said), shown, "{said}");
        }
        assert_eq!(Redactor::default().redact("any words"), "any words");
        let endless = "A".repeat(32 << 20);
        assert_eq!(redactor.redact(&endless), "A".repeat(500));
    }
}
