//! A budget for the regular expressions of a query, checked on the text before it is parsed.
//!
//! promql-parser compiles the pattern of every `=~` and `!~` while it parses, up to 10 MiB for each, and 13 bytes
//! (`a=~"\\w{99}",`) suffice for half of that. What a pattern matches is left to the server.

use promql_parser::util::unquote_string;
use regex::{Error, RegexBuilder};

use super::{
    super::promql::excerpt,
    error::{AdmitError, PATTERN_LENGTH_MAX, PATTERNS_BYTES_MAX, PATTERNS_MAX},
};

/// Charges for a pattern: the first of these sizes that it can be compiled in. `web-.*` needs the first, `\w+` the
/// second, `\w+-\w+-\w+` the third, `.{1,253}` the fourth.
const SIZES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 512 << 10];

/// Rejects a query whose patterns exceed [`PATTERNS_MAX`], [`PATTERN_LENGTH_MAX`] or [`PATTERNS_BYTES_MAX`].
///
/// Every string literal after a `~` counts, also one inside a comment or another string: so the count does not depend
/// on finding these as the parser does.
pub fn check_patterns(text: &str) -> Result<(), AdmitError> {
    let mut left = PATTERNS_BYTES_MAX;
    let literals = text.match_indices('~').filter_map(|(at, operator)| {
        let literal = without_space_and_comments(text.get(at + operator.len()..)?);
        Some(&literal[..literal_length(literal)?])
    });
    for (index, literal) in literals.enumerate() {
        if index >= PATTERNS_MAX {
            return Err(AdmitError::TooManyPatterns);
        }
        // The parser rejects a literal that cannot be unquoted before it compiles it.
        let Ok(pattern) = unquote_string(literal) else {
            continue;
        };
        if pattern.len() <= PATTERN_LENGTH_MAX
            && let Some(size) = compiled_size(&pattern, left)
        {
            left = left.saturating_sub(size);
        } else {
            return Err(AdmitError::PatternTooLarge(excerpt(&pattern)));
        }
    }
    Ok(())
}

/// The rest of the text from the next token on.
fn without_space_and_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix('#') {
        let end = comment.find(['\n', '\r']).unwrap_or(comment.len());
        rest = comment.get(end..).unwrap_or_default().trim_start();
    }
    rest
}

/// The length of the string literal at the beginning of the text; none if there is no complete one. The parser reads a
/// backslash as an escape in all three kinds.
fn literal_length(text: &str) -> Option<usize> {
    let mut characters = text.char_indices();
    let (_, quote) = characters.next()?;
    if !matches!(quote, '"' | '\'' | '`') {
        return None;
    }
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return Some(at + character.len_utf8());
        }
    }
    None
}

/// A size that the pattern can be compiled in, at most `left`; none if it is too large. A pattern that the parser
/// rejects takes nothing.
fn compiled_size(pattern: &str, left: usize) -> Option<usize> {
    let anchored = format!("^(?:{pattern})$");
    let sizes = SIZES.into_iter().filter(|size| *size <= left);
    for size in sizes {
        let compiled = compile(&anchored, size).or_else(|error| match error {
            // As the parser does, which compiles what Go reads as a literal brace: `/users/{id}`.
            Error::Syntax(_) => compile(&with_literal_braces(&anchored), size),
            error => Err(error),
        });
        match compiled {
            Ok(()) => return Some(size),
            Err(Error::Syntax(_)) => return Some(0),
            Err(_) => {}
        }
    }
    None
}

fn compile(pattern: &str, limit: usize) -> Result<(), Error> {
    RegexBuilder::new(pattern).size_limit(limit).build()?;
    Ok(())
}

/// The pattern with every `{` escaped that begins no repetition, exactly as `Matcher::try_parse_re` of promql-parser
/// does it: what a `{` that is no repetition has consumed is not looked at again.
fn with_literal_braces(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                if let Some(next) = characters.next() {
                    escaped.extend([character, next]);
                }
            }
            '{' => {
                let (is_repetition, consumed) = repetition(&mut characters);
                escaped.push_str(if is_repetition { "{" } else { "\\{" });
                escaped.push_str(&consumed);
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// True if a repetition (`4}`, `4,}`, `4,6}`) follows, with the text that was consumed to find that out.
fn repetition(characters: &mut std::str::Chars<'_>) -> (bool, String) {
    let mut consumed = String::new();
    let mut has_comma = false;
    for character in characters {
        let is_first = consumed.is_empty();
        consumed.push(character);
        match character {
            '0'..='9' => {}
            ',' if !is_first && !has_comma => has_comma = true,
            '}' => return (!is_first, consumed),
            _ => return (false, consumed),
        }
    }
    (false, consumed)
}

#[cfg(test)]
mod tests {
    use promql_parser::{
        label::{MatchOp, Matcher},
        parser::token::T_EQL_REGEX,
    };
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_in_common_use_are_accepted() {
        let services: Vec<String> = (0..60).map(|n| format!("service-name-{n}")).collect();
        let services = format!(r#"up{{service=~"{}"}}"#, services.join("|"));
        let many = format!("up{{{}}}", [r#"a=~"web-.+""#; 32].join(","));
        for text in [
            r#"up{pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$",job!~".*-canary"}"#,
            r#"sum(rate(a{path=~"/users/{id}/.*"}[5m])) / sum(rate(b{code=~"5.."}[5m]))"#,
            r#"a{x=~"\\w+-\\w+-\\w+",y=~"(?i)get|post"} + b{x=~'\\w+-\\w+-\\w+'}"#,
            r#"a{host=~".{1,253}"}"#,
            r"a{host=~`([a-z0-9]([-a-z0-9]*[a-z0-9])?\.){1,10}[a-z]{2,63}`}",
            "up{a=~",
            "~",
            "~'",
            "up =~ x",
            &services,
            &many,
        ] {
            assert_eq!(check_patterns(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_pattern_is_found_however_it_is_written() {
        for literal in [
            r#""\\w{99}""#,
            r"'\\w{99}'",
            r"`\w{99}`",
            r#""\x5cw{99}""#,
            r#""\u005cw{99}""#,
            r#""\134w{9\x39}""#,
            r#""(.{50}){50}""#,
            r#""((((((a{9}){9}){9}){9}){9}){9})""#,
            r#""\\w{99}{id}""#,
            r#""\\p{L}{200}""#,
        ] {
            for text in [
                format!("up{{a=~{literal}}}"),
                format!("up{{a!~ \n{literal}}}"),
                format!("up{{a=~#\"\r# '\n {literal}}}"),
                format!("up{{b=\"'#\",a=~{literal}}}"),
                format!("up{{\"a\"=~{literal}}}"),
                format!("sum by (x) (rate(up{{b=~\"\",a=~{literal}}}[5m]))"),
            ] {
                let refused = matches!(check_patterns(&text), Err(AdmitError::PatternTooLarge(_)));
                assert!(refused, "{text}");
            }
        }
    }

    #[test]
    fn the_patterns_of_a_query_share_one_budget() {
        let words = |count| format!("up{{{}}}", vec![r#"a=~"\\w+""#; count].join(","));
        assert_eq!(check_patterns(&words(16)), Ok(()));
        let refused = check_patterns(&words(17));
        assert_eq!(refused, Err(AdmitError::PatternTooLarge(r"\w+".to_owned())));
        let simple = |count| format!("up{{{}}}", vec![r#"a=~"b""#; count].join(","));
        assert_eq!(check_patterns(&simple(64)), Ok(()));
        assert_eq!(
            check_patterns(&simple(65)),
            Err(AdmitError::TooManyPatterns)
        );
        let long = format!("up{{a=~\"{}\"}}", "b".repeat(4097));
        assert!(matches!(
            check_patterns(&long),
            Err(AdmitError::PatternTooLarge(_))
        ));
    }

    proptest! {
        /// A pattern that is read differently could be charged for less than the parser compiles.
        #[test]
        fn braces_are_read_as_the_parser_reads_them(pattern in r"([{},1a(|)]|\\\\|\\w|\{1,2\}){0,12}") {
            let parsed = Matcher::new_matcher(T_EQL_REGEX, "a".to_owned(), pattern.clone());
            if let Ok(Matcher { op: MatchOp::Re(compiled), .. }) = parsed {
                let anchored = format!("^(?:{pattern})$");
                let expected = if compile(&anchored, 1 << 20).is_ok() {
                    anchored
                } else {
                    with_literal_braces(&anchored)
                };
                prop_assert_eq!(compiled.as_str(), expected);
            }
        }
    }
}
