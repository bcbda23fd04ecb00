//! What must not be read in anybody's words: our own credentials, those for members by themselves, and the hub's as far
//! as a scheme or its form tells them.
//!
//! A server, or a proxy before it, may repeat a request in its answer, header and all, and the words of an error go into
//! statuses, events and logs. It refuses to guess what else may be secret: what a server knows beside that is its own.

use std::sync::Arc;

use super::error::{CallError, cut};

/// What stands in the place of what is hidden.
const HIDDEN: &str = "[hidden]";
/// So many characters in a row of a credential give it away: words are cut, and a part of it is as little meant for others
/// as the whole.
const TELLING: usize = 12;
/// The scheme of a header, after which a credential follows, whosever it is.
const SCHEME: &str = "bearer";
/// How a JSON web token begins: the base64 of `{"`. Tokens that are read anew from a file are known by that.
const WEB_TOKEN: &str = "eyJ";
/// The least length of a web token.
const WEB_TOKEN_MIN: usize = 40;

/// The credentials of one connection; shows none of them.
#[derive(Clone, Default)]
pub(in crate::adapters) struct Redactor(Arc<[String]>);

// === impl Redactor ===

impl Redactor {
    pub(in crate::adapters) fn new(credentials: Vec<String>) -> Self {
        let said = credentials.into_iter().filter(|text| !text.is_empty());
        Self(said.collect())
    }

    /// The error without credentials in its words.
    pub(in crate::adapters) fn out_of(&self, error: CallError) -> CallError {
        match error {
            CallError::Status { code, message } => CallError::Status {
                code,
                message: self.out_of_words(&message),
            },
            CallError::Transport(words) => CallError::Transport(self.out_of_words(&words)),
            CallError::Answer(words) => CallError::Answer(self.out_of_words(&words)),
            CallError::Request(words) => CallError::Request(self.out_of_words(&words)),
            ours @ (CallError::Late(_) | CallError::Crowded { .. } | CallError::Closed) => ours,
        }
    }

    /// No more of it is looked at, and shown, than anybody reads: a server may say as much as an answer may have.
    fn out_of_words(&self, text: &str) -> String {
        let text = cut(text);
        let mut clean = String::with_capacity(text.len());
        let mut scheme = false;
        for piece in text.split_inclusive(|c| !is_of_credential(c)) {
            let end = piece.trim_end_matches(|c| !is_of_credential(c));
            if !end.is_empty() {
                let hide = scheme || self.tells(end);
                clean.push_str(if hide { HIDDEN } else { end });
                scheme = end.eq_ignore_ascii_case(SCHEME);
            }
            clean.push_str(piece.get(end.len()..).unwrap_or_default());
        }
        clean
    }

    /// Whether a word gives a credential away.
    fn tells(&self, word: &str) -> bool {
        let is_token = word.len() >= WEB_TOKEN_MIN && word.contains(WEB_TOKEN);
        let parts = || word.as_bytes().windows(TELLING);
        let gives_away = |secret: &String| match secret.len() {
            // So little may be a part of any word.
            ..TELLING => word.split('=').any(|part| part == secret),
            _ => parts().any(|part| {
                let mut of_secret = secret.as_bytes().windows(TELLING);
                of_secret.any(|own| own == part)
            }),
        };
        is_token || self.0.iter().any(gives_away)
    }
}

/// Whether a character may stand in a credential (RFC 6750, `b64token`).
fn is_of_credential(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_show_whole_in_part_or_between_other_words() {
        let token = "abcdef0123456789.ghijkl";
        let web = format!("eyJhbGciOi.{}", "x".repeat(40));
        let hidden = Redactor::new(vec![token.to_owned(), "s3cret".to_owned()]);
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
            assert_eq!(hidden.out_of_words(said), shown, "{said}");
        }
        assert_eq!(Redactor::default().out_of_words("any words"), "any words");
        let endless = "A".repeat(32 << 20);
        assert_eq!(hidden.out_of_words(&endless), "A".repeat(500));
    }
}
