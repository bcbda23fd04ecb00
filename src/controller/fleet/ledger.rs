//! The ledger of a fleet as `status.ledger` keeps it: one line of JSON, in the format of [`Ledger`].

use crate::domain::federate::Ledger;

/// The text of a ledger for status.
pub(crate) fn written(ledger: &Ledger) -> String {
    // Serializing numbers and strings cannot fail.
    serde_json::to_string(ledger).unwrap_or_default()
}

/// The ledger of a status; `None` if the text cannot be read. Then the next decision assigns budgets again.
pub(crate) fn read(text: &str) -> Option<Ledger> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_written_and_read_back_and_text_that_is_none_is_ignored() {
        let text = r#"{"generation":3,"members":{"m1":{"tenure":1,"min":1,"max":7}}}"#;
        let ledger = read(text).unwrap();
        assert_eq!(written(&ledger), text);
        assert_eq!(read("nonsense"), None);
    }
}
