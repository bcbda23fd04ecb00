//! How an error and its causes are shown on one line, and where an error in YAML is.

/// An error and its sources in one sentence. A source that the text before it repeats is left out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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

/// Where a text stops being what is expected of it, from 1, if that is known; and the parser's first line about it: the
/// others repeat the place.
pub(crate) fn yaml(error: &serde_saphyr::Error) -> (Option<u64>, String) {
    let line = error.location().map(|at| at.line());
    let message = error.without_snippet().to_string();
    let first = message.lines().next().unwrap_or_default().to_owned();
    (line.filter(|line| *line > 0), first)
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
}
