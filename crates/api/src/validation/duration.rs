//! Parses durations as users write them, in specs and on the command line.

use jiff::SignedDuration;

/// Parses whole days such as `3d`, or a Go duration such as `60s` or `1h30m`.
///
/// `None` if the text is not a duration, or is one that is negative or out of range. Limits are up to the caller.
///
/// # Source
/// crane's `ParseDuration`, which knows days in addition to Go's units.
pub fn duration(text: &str) -> Option<SignedDuration> {
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.trim().parse::<i64>().ok());
    let span = match days {
        Some(days) => SignedDuration::try_from_hours(days.checked_mul(24)?)?,
        None => text.parse().ok()?,
    };
    (!span.is_negative()).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_may_be_in_days() {
        for (text, seconds) in [
            ("7d", 604_800),
            ("90s", 90),
            ("1h30m", 5400),
            ("1h 30m", 5400),
            ("0d", 0),
        ] {
            assert_eq!(
                duration(text),
                Some(SignedDuration::from_secs(seconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_is_no_duration_or_out_of_range_is_none() {
        for text in [
            "",
            "7",
            "d",
            "-1d",
            "-5m",
            "soon",
            "1.5d",
            "100000000000000000d",
            "106751991167301d",
            "384307168202282326d",
            "9223372036854775807d",
            "-9223372036854775808d",
            "99999999999999999999999999d",
            "9223372036854775807h",
            "99999999999999999999999999s",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
        let longest = duration("106751991167300d").map(|span| span.as_hours());
        assert_eq!(longest, Some(106_751_991_167_300 * 24));
    }
}
