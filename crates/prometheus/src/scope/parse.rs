//! Parses queries, after a check of the text for what would crash the parser, overflow the stack of a later walk or
//! take much memory.
//! What a query means is checked by [`super::admit`].

use promql_parser::parser::{self, Expr};

use super::{
    super::promql::excerpt,
    error::{AdmitError, DEPTH_MAX, OPERATORS_MAX},
    patterns::check_patterns,
};

/// Parses a query, after [`check_raw`] and [`check_patterns`].
///
/// promql-parser 0.11 panics on durations beyond 64 bits of seconds and is not written for hostile input, so a panic of
/// the parser is caught and becomes an error of the query.
pub fn parse(text: &str) -> Result<Expr, AdmitError> {
    check_raw(text)?;
    check_patterns(text)?;
    // The text is a user's, and a panic would end the forecaster.
    match std::panic::catch_unwind(|| parser::parse(text)) {
        Ok(Ok(tree)) => Ok(tree),
        Ok(Err(message)) => Err(AdmitError::Syntax(excerpt(&message))),
        Err(_) => Err(AdmitError::Syntax("the parser panicked".to_owned())),
    }
}

/// Rejects deep nesting, long chains and durations that are bare numbers.
fn check_raw(text: &str) -> Result<(), AdmitError> {
    let code = without_strings(text);
    let mut depth = 0_usize;
    for character in code.chars() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(AdmitError::TooDeep);
        }
    }
    check_operators(&code)?;
    code.match_indices('[').try_for_each(|(at, _)| {
        let inside = code[at + 1..].split(']').next().unwrap_or_default();
        inside.split(':').try_for_each(check_duration)
    })?;
    code.match_indices("offset").try_for_each(|(at, word)| {
        let after = code[at + word.len()..].trim_start_matches([' ', '\t', '\r', '\n', '+', '-']);
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        check_duration(&after[..end.unwrap_or(after.len())])
    })
}

/// Limits the operators: what may stand between two operands or before one, outside of `{...}`. Each adds at most one
/// level to the tree.
fn check_operators(code: &str) -> Result<(), AdmitError> {
    let mut in_braces = false;
    let signs = code.chars().filter(|character| {
        in_braces = *character == '{' || in_braces && *character != '}';
        !in_braces && "+-*/%^<>!".contains(*character)
    });
    let equalities = code.matches("==");
    let tokens = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words = tokens.filter(|word| matches!(*word, "and" | "or" | "unless" | "atan2"));
    if signs.count() + equalities.count() + words.count() > OPERATORS_MAX {
        Err(AdmitError::TooManyOperators)
    } else {
        Ok(())
    }
}

/// Rejects a duration that is a bare number: it has no unit, and the parser panics on a huge one.
fn check_duration(word: &str) -> Result<(), AdmitError> {
    let word = word.trim();
    let number = word.parse::<f64>().is_ok() || word.starts_with("0x");
    // An exponent may be cut in two by its sign (`1e+300`).
    let exponent = word.starts_with(|c: char| c.is_ascii_digit() || c == '.') && word.contains('e');
    if number || exponent {
        Err(AdmitError::Duration(excerpt(word)))
    } else {
        Ok(())
    }
}

/// The text in lower case, without comments and the contents of strings.
fn without_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '#' => {
                characters.by_ref().find(|c| matches!(c, '\n' | '\r'));
                code.push(' ');
            }
            '"' | '\'' | '`' => {
                skip_string(&mut characters, character);
                // A string still divides what is before it from what is after it.
                code.push_str("\"\"");
            }
            other => code.push(other.to_ascii_lowercase()),
        }
    }
    code
}

/// Skips to the closing quote. The parser reads a backslash as an escape in all three kinds of string.
fn skip_string(characters: &mut std::str::Chars<'_>, quote: char) {
    while let Some(character) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return;
        }
    }
}
