//! Words in statuses, conditions, events and metric labels: enums whose variants are words of the API, counted nouns,
//! and quotations.

use std::fmt;

use jiff::SignedDuration;

/// Advice about another writer of replicas, in the order in which the count never falls.
pub const ANOTHER_WRITER: &str = "let it leave spec.replicas alone before you remove that from its manifest: kubectl apply \
    set-last-applied without it; Argo CD ignoreDifferences with RespectIgnoreDifferences=true; Flux, Helm and Karmada in \
    docs/operations.md#another-writer-of-replicas";

/// A count and its noun, such as `1 replica` and `2 replicas`; the plural of the noun ends with an s.
///
/// ```
/// use foretide_domain::words::counted;
///
/// assert_eq!(counted(1_u32, "replica"), "1 replica");
/// assert_eq!(counted(2_u32, "replica"), "2 replicas");
/// ```
pub fn counted<N: fmt::Display + PartialEq + From<u8> + Copy>(n: N, noun: &str) -> String {
    let ending = if n == N::from(1) { "" } else { "s" };
    format!("{n} {noun}{ending}")
}

/// A whole number as people read it: `53,574`.
///
/// ```
/// use foretide_domain::words::grouped;
///
/// assert_eq!(grouped(999), "999");
/// assert_eq!(grouped(1_234_567), "1,234,567");
/// ```
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The beginning of a text from outside, of at most `most` characters, short enough to be quoted in a message.
///
/// # Units
/// `most` is in characters, not bytes; the three dots that mark a cut are not counted.
///
/// ```
/// use foretide_domain::words::excerpt;
///
/// assert_eq!(excerpt("up{job=\"web\"}", 20), "up{job=\"web\"}");
/// assert_eq!(excerpt("up{job=\"web\"}", 2), "up...");
/// ```
pub fn excerpt(text: &str, most: usize) -> String {
    // `nth(most)` is the first character that does not fit: a text of exactly `most` characters is not cut.
    let cut = text.char_indices().nth(most);
    let beginning = cut.and_then(|(cut, _)| text.get(..cut));
    beginning.map_or_else(|| text.to_owned(), |beginning| format!("{beginning}..."))
}

/// A length of time in minutes such as `5 min`, or in seconds if it is not a whole number of minutes.
///
/// ```
/// use foretide_domain::words::span;
/// use jiff::SignedDuration;
///
/// assert_eq!(span(SignedDuration::from_secs(300)), "5 min");
/// assert_eq!(span(SignedDuration::from_secs(90)), "90 s");
/// ```
pub fn span(length: SignedDuration) -> String {
    match (length.as_secs(), length.as_secs().checked_rem(60)) {
        (seconds, Some(0)) => format!("{} min", seconds.div_euclid(60)),
        (seconds, _) => format!("{seconds} s"),
    }
}

/// An error and its sources in one sentence. A source that the text before it repeats is left out.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let cause = inner.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = inner.source();
    }
    text
}

/// Declares an enum once: its variants, all of them in order (`ALL`), and the word of each (`as_str`), which is the
/// name of the variant unless another word follows it after `=`.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$of_variant:meta])+ $variant:ident $(= $word:literal)?,)+ }
    ) => {
        $(#[$meta])*
        pub enum $name { $($(#[$of_variant])+ $variant,)+ }

        impl $name {
            /// Every variant, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word of the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $crate::words!(@ $variant $($word)?),)+ }
            }
        }
    };
    (@ $variant:ident) => { stringify!($variant) };
    (@ $variant:ident $word:literal) => { $word };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the file{}", .repeats.then(|| format!(": {source}")).unwrap_or_default())]
    struct Unreadable {
        repeats: bool,
        source: std::io::Error,
    }

    #[test]
    fn a_cause_is_said_once() {
        for repeats in [false, true] {
            let source = std::io::Error::other("no such file");
            let error = Unreadable { repeats, source };
            assert_eq!(chain(&error), "cannot read the file: no such file");
        }
    }

    #[test]
    fn digits_are_grouped_by_three() {
        for (n, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (53_574, "53,574"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(n), expected);
        }
    }
}
