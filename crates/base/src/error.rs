//! Errors on one line, and the place of an error in YAML.

pub use foretide_domain::words::chain;

/// The line of the first error in a text, from 1, if it is known, and a message in words about the text and not about
/// its parser.
pub fn yaml(error: &serde_saphyr::Error, text: &str) -> (Option<u64>, String) {
    // The line of an unknown place is 0.
    let line = error.location().map(|at| at.line()).filter(|it| *it > 0);
    match template_line(text, line) {
        Some(line) => (Some(line), TEMPLATE.to_owned()),
        None => (line, sentence(error.without_snippet())),
    }
}

/// Advice on a text that is a template.
pub const TEMPLATE: &str = "`{{` looks like a template: render it first, for example with `helm template`, \
                                   and use the result";

/// Returns whether a line belongs to a template. Two braces in quotes are text of other tools, too.
pub fn is_template(line: &str) -> bool {
    line.contains("{{") && line.contains("}}")
}

/// The line of a template that broke a text: the one with the error, or the first that is nothing but a directive.
fn template_line(text: &str, line: Option<u64>) -> Option<u64> {
    (1..).zip(text.lines()).find_map(|(number, content)| {
        let breaks = Some(number) == line || content.trim_start().starts_with("{{");
        (breaks && is_template(content)).then_some(number)
    })
}

/// Description of an error without its place.
fn sentence(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::AliasError { error, .. } => sentence(error),
        Error::Message { msg, .. } => msg.clone(),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => TOO_LARGE.to_owned(),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate field `{key}`; remove one of the two")
        }
        Error::DuplicateMappingKey { .. } => "duplicate field; remove one of the two".to_owned(),
        Error::MultipleDocuments { .. } => {
            "expected one document, found another one after `---`".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => {
            format!("expected a finite number, found `{value}`")
        }
        Error::NullIntoString { .. } => "expected text, found nothing".to_owned(),
        Error::UnknownAnchor { .. } => {
            "no anchor has the name of this alias; quote a text that begins with `*`".to_owned()
        }
        Error::Unexpected { expected, .. } => format!("expected {}", words(expected)),
        Error::InvalidScalar { ty, .. } => format!("expected {}", words(ty)),
        Error::SerdeInvalidType { .. }
        | Error::SerdeInvalidValue { .. }
        | Error::SerdeUnknownField { .. }
        | Error::SerdeUnknownVariant { .. }
        | Error::SerdeMissingField { .. } => mismatch(error),
        other => not_yaml(other),
    }
}

const TOO_LARGE: &str =
    "too large or nested too deeply to be a manifest (an alias counts as what it repeats)";

/// Description of a value that is YAML, but not of the type that serde expects.
fn mismatch(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::SerdeUnknownField {
            field, expected, ..
        } => format!(
            "unknown field `{field}`; expected one of {}",
            expected.join(", ")
        ),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => format!("expected one of {}, found `{variant}`", expected.join(", ")),
        Error::SerdeMissingField { field, .. } => format!("field `{field}` is required"),
        Error::SerdeInvalidType {
            unexpected,
            expected,
            ..
        }
        | Error::SerdeInvalidValue {
            unexpected,
            expected,
            ..
        } => format!("expected {}, found {unexpected}", words(expected)),
        other => not_yaml(other),
    }
}

/// A type as a reader of YAML calls it.
fn words(type_name: &str) -> &str {
    match type_name {
        "string scalar" | "string" | "a string" => "text, not a list or an object",
        "mapping start" | "mapping" | "a map" | "map" => "an object",
        "sequence start" | "sequence" | "a sequence" => "a list",
        "boolean" | "bool" => "true or false",
        "f32" | "f64" | "floating point" => "a number",
        "i32" | "i64" | "u16" | "u32" | "u64" => "a whole number",
        other => other,
    }
}

/// Description of a syntax error, with advice on the usual mistakes.
fn not_yaml(error: &serde_saphyr::Error) -> String {
    const ADVICE: [(&str, &str); 4] = [
        ("tab", "indent with spaces"),
        (
            "simple key expected",
            "write a colon and a space after the name of a field, as in `minReplicas: 2`",
        ),
        ("did not find expected key", "check the indentation"),
        ("multiline quoted", "check that the quotes are closed"),
    ];
    // Terms of YAML with their everyday words, replaced in this order: a longer term before those that it contains.
    const TERMS: [(&str, &str); 9] = [
        ("block ", ""),
        ("flow ", ""),
        ("a mapping", "an object"),
        ("plain scalar", "text"),
        ("scalar", "text"),
        ("mapping", "object"),
        ("sequence", "list"),
        ("simple key", "name of a field"),
        ("expected key", "expected field"),
    ];
    let formatter = serde_saphyr::UserMessageFormatter;
    let message = serde_saphyr::MessageFormatter::format_message(&formatter, error);
    let first = message.lines().next().unwrap_or_default();
    if first.contains("recursion limit") {
        return TOO_LARGE.to_owned();
    }
    let advice = ADVICE
        .iter()
        .find(|(found, _)| first.contains(found))
        .map(|(_, advice)| format!("; {advice}"));
    let plain = TERMS
        .iter()
        .fold(first.to_owned(), |text, (from, to)| text.replace(from, to));
    format!("not valid YAML: {plain}{}", advice.unwrap_or_default())
}
