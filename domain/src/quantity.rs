//! Kubernetes quantities: the text form of every resource amount, target and metric value.
//!
//! Parsing, rounding and printing agree with the API server's own type to the last digit, also for texts with more
//! digits than it can hold. Where that type wraps around, this one saturates and sets a flag. There is no arithmetic
//! beyond conversion.
//!
//! ```
//! use foretide_domain::quantity::Quantity;
//!
//! let memory: Quantity = "1536Mi".parse()?;
//! assert_eq!(memory.to_string(), "1536Mi");
//! assert_eq!(memory.milli_value().value, 1_610_612_736_000);
//! assert!("1 Gi".parse::<Quantity>().is_err());
//! # Ok::<(), foretide_domain::quantity::QuantityError>(())
//! ```
//!
//! Source: kubernetes/apimachinery `pkg/api/resource`.

use std::{cmp::Ordering, fmt, str::FromStr};

/// An amount with the notation it was written in. Never finer than a billionth (nano).
///
/// Equality and order are those of the amount; notation does not matter.
///
/// ```
/// use foretide_domain::quantity::Quantity;
///
/// let cores: Quantity = "1500m".parse()?;
/// assert_eq!(cores, "1.5".parse()?);
/// assert!(cores < "2".parse()?);
/// # Ok::<(), foretide_domain::quantity::QuantityError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The amount is `unscaled * 10^exponent`, `exponent >= -9`. Not normalized: the split decides
    /// the last bit of [`Quantity::approx_f64`].
    unscaled: i128,
    exponent: i32,
    format: Format,
    /// The text as written, where the API server prints it unchanged.
    written: Option<Box<str>>,
}

/// The notation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Suffixes `n u m k M G T P E`.
    DecimalSi,
    /// Suffixes `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// An amount in thousandths, as every metric value and target enters the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milli {
    /// The thousandths, rounded away from zero.
    pub value: i64,
    /// True if the exact value is out of range, and `value` is the end of the range on its side.
    pub saturated: bool,
}

/// Reason for which a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("quantity is empty: expected a number such as 500m, 1.5Gi or 12e6")]
    Empty,
    /// The text is not a number.
    #[error("quantity {0:?} is not a number: expected one such as 500m, 1.5Gi or 12e6")]
    NotANumber(String),
    /// The number is followed by an unknown suffix.
    #[error(
        "quantity {0:?} has an unknown suffix: expected n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, \
         Pi, Ei or an exponent such as e3"
    )]
    UnknownSuffix(String),
}

/// Exponent of the finest unit kept.
const NANO: i32 = -9;
const MILLI: i32 = -3;
/// A number of this many digits always fits into an `i64`.
const FAST_DIGITS: usize = 18;
const BINARY_SUFFIXES: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];
const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

impl Format {
    /// The notation in which amounts of a resource are reported.
    ///
    /// ```
    /// use foretide_domain::quantity::{Format, Quantity};
    ///
    /// let gibibyte = Quantity::from_milli(1_073_741_824_000, Format::of_resource("memory"));
    /// assert_eq!(gibibyte.to_string(), "1Gi");
    /// ```
    ///
    /// # Source
    /// metrics-server writes memory with binary suffixes and cpu with decimal ones.
    pub fn of_resource(resource: &str) -> Self {
        if resource == "memory" {
            Self::BinarySi
        } else {
            Self::DecimalSi
        }
    }

    /// The word the API's documentation uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DecimalSi => "DecimalSI",
            Self::BinarySi => "BinarySI",
            Self::DecimalExponent => "DecimalExponent",
        }
    }
}

impl Quantity {
    /// The amount of `milli` thousandths.
    ///
    /// ```
    /// use foretide_domain::quantity::{Format, Quantity};
    ///
    /// assert_eq!(Quantity::from_milli(1500, Format::DecimalSi).to_string(), "1500m");
    /// assert_eq!(Quantity::from_milli(2000, Format::DecimalSi).to_string(), "2");
    /// ```
    pub const fn from_milli(milli: i64, format: Format) -> Self {
        Self::new(milli as i128, MILLI, format)
    }

    /// The amount that is nearest to `value`, to a billionth; `None` for a value that is no finite number.
    ///
    /// ```
    /// use foretide_domain::quantity::Quantity;
    ///
    /// let nearest = Quantity::nearest(0.1 + 0.2).map(|amount| amount.to_string());
    /// assert_eq!(nearest.as_deref(), Some("300m"));
    /// ```
    pub fn nearest(value: f64) -> Option<Self> {
        // Decimal digits of a double are exact, a product with a power of ten is not.
        let written: Self = format!("{value:.9}").parse().ok()?;
        Some(Self::new(written.nanos(), NANO, Format::DecimalSi))
    }

    const fn new(unscaled: i128, exponent: i32, format: Format) -> Self {
        Self {
            unscaled,
            exponent,
            format,
            written: None,
        }
    }

    /// The notation.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The amount in thousandths, rounded away from zero, saturating with a flag.
    ///
    /// ```
    /// use foretide_domain::quantity::Quantity;
    ///
    /// let milli = |text: &str| text.parse::<Quantity>().map(|amount| amount.milli_value().value);
    /// assert_eq!(milli("250m"), Ok(250));
    /// // A tenth of a thousandth is not lost.
    /// assert_eq!(milli("100u"), Ok(1));
    /// ```
    pub fn milli_value(&self) -> Milli {
        let (exact, fits) = self.scaled(MILLI);
        match i64::try_from(exact) {
            Ok(value) if fits => Milli {
                value,
                saturated: false,
            },
            _ => Milli {
                value: if exact < 0 { i64::MIN } else { i64::MAX },
                saturated: true,
            },
        }
    }

    /// The amount in billionths; saturates at the range of `i128`.
    ///
    /// ```
    /// use foretide_domain::quantity::Quantity;
    ///
    /// assert_eq!("1500m".parse().map(|amount: Quantity| amount.nanos()), Ok(1_500_000_000));
    /// ```
    pub fn nanos(&self) -> i128 {
        self.scaled(NANO).0
    }

    /// `unscaled * 10^exponent` in doubles, which is not always the nearest double of the decimal:
    /// `350m` gives `0.35000000000000003`. Tolerances are converted this way.
    ///
    /// ```
    /// use foretide_domain::quantity::Quantity;
    ///
    /// let tolerance: Quantity = "350m".parse()?;
    /// assert_eq!(tolerance.approx_f64(), 0.350_000_000_000_000_03);
    /// # Ok::<(), foretide_domain::quantity::QuantityError>(())
    /// ```
    #[expect(
        clippy::cast_precision_loss,
        reason = "rounding to the nearest double is the point"
    )]
    pub fn approx_f64(&self) -> f64 {
        let base = self.unscaled as f64;
        if self.exponent == 0 || self.unscaled == 0 {
            // Zero times an infinite power would not be a number.
            return base;
        }
        base * power_of_ten(self.exponent)
    }

    /// The amount in units of `10^exponent`, away from zero, and whether it fits.
    fn scaled(&self, exponent: i32) -> (i128, bool) {
        let shift = self.exponent.saturating_sub(exponent);
        let end = if self.unscaled < 0 {
            i128::MIN
        } else {
            i128::MAX
        };
        match ten_to(shift.unsigned_abs()) {
            _ if self.unscaled == 0 => (0, true),
            Some(factor) if shift >= 0 => self
                .unscaled
                .checked_mul(factor)
                .map_or((end, false), |exact| (exact, true)),
            Some(divisor) => {
                let (whole, rest) = (self.unscaled / divisor, self.unscaled % divisor);
                // Division truncates towards zero, so a remainder moves the result one further from zero.
                (whole + rest.signum(), true)
            }
            None if shift >= 0 => (end, false),
            // Far below the unit: any amount but zero still rounds away from zero.
            None => (self.unscaled.signum(), true),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let parts = Parts::scan(text).ok_or_else(|| QuantityError::NotANumber(text.to_owned()))?;
        let scale = parts
            .scale()
            .ok_or_else(|| QuantityError::UnknownSuffix(text.to_owned()))?;
        let mut quantity = match scale {
            Suffix::Decimal(exponent, format) => parts.decimal(exponent, format),
            Suffix::Binary(shift) => parts.binary(shift),
        };
        // `decimal` and `binary` only say whether the text is kept: they do not see it.
        if quantity.written.is_some() {
            quantity.written = Some(text.into());
        }
        if parts.negative {
            quantity.unscaled = quantity.unscaled.saturating_neg();
        }
        Ok(quantity)
    }
}

/// The scale that a suffix stands for.
enum Suffix {
    Decimal(i32, Format),
    Binary(u32),
}

/// The parts of a text. Leading zeros are removed; without any other digit `whole` is `0`.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits a text; `None` if it does not have the form `[sign] digits [. digits] suffix`.
    fn scan(text: &'a str) -> Option<Self> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = digits(unsigned.trim_start_matches('0'));
        let whole = if whole.is_empty() { "0" } else { whole };
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        // Any run of these letters is scanned here, as upstream does; `scale` then says whether it is a known suffix.
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let number = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        number.bytes().all(|b| b.is_ascii_digit()).then_some(Self {
            negative,
            whole,
            fraction,
            suffix,
        })
    }

    fn scale(&self) -> Option<Suffix> {
        if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(s, _)| *s == self.suffix) {
            return Some(Suffix::Decimal(*exponent, Format::DecimalSi));
        }
        if let Some((_, shift)) = BINARY_SUFFIXES.iter().find(|(s, _)| *s == self.suffix) {
            return Some(Suffix::Binary(*shift));
        }
        let exponent = self.suffix.strip_prefix(['e', 'E'])?;
        Some(Suffix::Decimal(
            exponent.parse().ok()?,
            Format::DecimalExponent,
        ))
    }

    fn all_digits(&self) -> impl Iterator<Item = char> {
        self.whole.chars().chain(self.fraction.chars())
    }

    fn count(&self) -> usize {
        self.whole.len().saturating_add(self.fraction.len())
    }

    /// The exponent of the last digit, before the suffix.
    fn last_place(&self) -> i32 {
        i32::try_from(self.fraction.len()).map_or(i32::MIN, |n| -n)
    }

    /// `digits * 10^exponent`. Short numbers keep their digits; long ones are rounded up to nano.
    fn decimal(&self, exponent: i32, format: Format) -> Quantity {
        let exponent = exponent.saturating_add(self.last_place());
        let (digits, exact) = integer(self.all_digits());
        if self.count() <= FAST_DIGITS && exponent >= NANO {
            let mut tail = self.all_digits().skip(self.count().saturating_sub(3));
            let ends_in_thousands = self.count() >= 3 && tail.all(|c| c == '0');
            // Upstream's quick test of a text that is canonical already, which is then printed as it is.
            let repeated = exponent % 3 == 0 && !ends_in_thousands && !self.whole.starts_with('0');
            return Quantity {
                written: repeated.then(Box::default),
                ..Quantity::new(digits, exponent, format)
            };
        }
        if exponent < NANO {
            let cut = usize::try_from(NANO.saturating_sub(exponent)).unwrap_or(usize::MAX);
            let kept = self.count().saturating_sub(cut);
            let (nanos, _) = integer(self.all_digits().take(kept));
            // Digits beyond nano round up, however small they are.
            let sticky = self.all_digits().skip(kept).any(|c| c != '0');
            return Quantity::new(nanos.saturating_add(i128::from(sticky)), NANO, format);
        }
        let to_nano = ten_to(exponent.saturating_sub(NANO).unsigned_abs());
        match to_nano
            .filter(|_| exact)
            .and_then(|factor| digits.checked_mul(factor))
        {
            Some(nanos) => Quantity::new(nanos, NANO, format),
            None => Quantity::new(digits, exponent, format),
        }
    }

    /// `digits * 2^shift`, rounded up to nano, at most `2^63 - 1`.
    fn binary(&self, shift: u32) -> Quantity {
        let (whole, _) = integer(self.whole.chars());
        let unit = 1_i128 << shift;
        let amount = whole.saturating_mul(unit);
        if self.fraction.is_empty() && self.is_fast(shift) && i64::try_from(amount).is_ok() {
            // Canonical already, so printed as it is: a number that is no multiple of 8 is none of 1024.
            let written = (whole & 7 != 0).then(Box::default);
            return Quantity {
                written,
                ..Quantity::new(amount, 0, Format::BinarySi)
            };
        }
        let nanos_per_unit = unit.saturating_mul(1_000_000_000);
        let mut sticky = false;
        let fraction = self.fraction.bytes().rev().fold(0_i128, |below, digit| {
            let tenths = i128::from(digit - b'0') * nanos_per_unit + below;
            sticky |= tenths % 10 != 0;
            tenths / 10
        });
        let nanos = whole
            .saturating_mul(nanos_per_unit)
            .saturating_add(fraction)
            .saturating_add(i128::from(sticky));
        if nanos > i128::from(i64::MAX) * 1_000_000_000 {
            return Quantity::new(i128::from(i64::MAX), 0, Format::BinarySi);
        }
        // As upstream: below 1, a decimal suffix loses nothing, and there is no binary one.
        let is_small = nanos > 0 && nanos < 1_000_000_000;
        let format = if is_small {
            Format::DecimalSi
        } else {
            Format::BinarySi
        };
        Quantity::new(nanos, NANO, format)
    }

    /// Returns true if the API server keeps a whole number with this binary suffix as an integer.
    fn is_fast(&self, shift: u32) -> bool {
        // As upstream, which estimates the decimal digits of `2^shift` like this: 6 of `1Mi`.
        let magnitude = usize::try_from(shift * 3 / 10).unwrap_or(usize::MAX);
        self.whole.len().saturating_add(magnitude) <= 14
    }
}

/// Splits off the leading digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

/// The number that digits spell, saturating, and whether it is exact.
fn integer(digits: impl Iterator<Item = char>) -> (i128, bool) {
    digits
        .map(|c| i128::from(c.to_digit(10).unwrap_or_default()))
        .try_fold(0_i128, |n, digit| n.checked_mul(10)?.checked_add(digit))
        .map_or((i128::MAX, false), |n| (n, true))
}

fn ten_to(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

/// A power of ten as Go's `math.Pow10` gives it.
fn power_of_ten(exponent: i32) -> f64 {
    const SMALL: [f64; 32] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    ];
    const LARGE: [f64; 10] = [
        1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288,
    ];
    fn entry(table: &[f64], index: u32) -> Option<f64> {
        table.get(usize::try_from(index).ok()?).copied()
    }

    let n = exponent.unsigned_abs();
    match (entry(&LARGE, n / 32), entry(&SMALL, n % 32)) {
        (Some(large), Some(small)) if exponent >= 0 => large * small,
        (Some(large), Some(small)) => 1.0 / large / small,
        _ if exponent >= 0 => f64::INFINITY,
        _ => 0.0,
    }
}

impl fmt::Display for Quantity {
    /// The canonical text: no digits lost, mantissa a whole number, largest suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(written) = &self.written {
            return f.write_str(written);
        }
        if self.unscaled == 0 {
            return f.write_str("0");
        }
        match self.format {
            // As upstream: below 1024 and with a fraction, binary suffixes would need a rounding.
            Format::BinarySi => match self.whole_above_1023() {
                Some(whole) => display_binary(whole, f),
                None => self.display_decimal(Format::DecimalSi, f),
            },
            format => self.display_decimal(format, f),
        }
    }
}

impl Quantity {
    /// The amount if it is a whole number with a magnitude above 1023.
    fn whole_above_1023(&self) -> Option<i128> {
        let (whole, fits) = self.scaled(0);
        let is_whole = fits && Self::new(whole, 0, self.format) == *self;
        (is_whole && whole.unsigned_abs() >= 1024).then_some(whole)
    }

    fn display_decimal(&self, format: Format, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut mantissa, mut exponent) = (self.unscaled, self.exponent);
        // Zero was printed before, so this ends.
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.saturating_add(1);
        }
        for _ in 0..exponent.rem_euclid(3) {
            mantissa = mantissa.saturating_mul(10);
            exponent = exponent.saturating_sub(1);
        }
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == exponent);
        match (format, suffix) {
            (Format::DecimalSi, Some((suffix, _))) => write!(f, "{mantissa}{suffix}"),
            _ if exponent == 0 => write!(f, "{mantissa}"),
            _ => write!(f, "{mantissa}e{exponent}"),
        }
    }
}

fn display_binary(whole: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut mantissa, mut suffix) = (whole, "");
    for (next, _) in BINARY_SUFFIXES {
        if mantissa % 1024 != 0 {
            break;
        }
        (mantissa, suffix) = (mantissa / 1024, next);
    }
    write!(f, "{mantissa}{suffix}")
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_outside_the_vectors_are_read_and_printed_as_the_api_server_does() {
        for (text, canonical, milli) in [
            ("0", "0", 0),
            ("+", "0", 0),
            (".", "0", 0),
            ("+1", "+1", 1000),
            ("1.", "1.", 1000),
            ("01", "01", 1000),
            ("1500", "1500", 1_500_000),
            ("1000", "1k", 1_000_000),
            ("-1500m", "-1500m", -1500),
            ("1e-3", "1e-3", 1),
            ("1e-12", "1e-9", 1),
            ("0.00000000000000000000000000000000000000000000001", "1n", 1),
            (
                "123456789.0123456789",
                "123456789012345679n",
                123_456_789_013,
            ),
            ("1024Ki", "1Mi", 1_048_576_000),
            ("1023", "1023", 1_023_000),
            ("0.0000001Ki", "102400n", 1),
            ("-0.5Ki", "-512", -512_000),
        ] {
            let quantity = text.parse::<Quantity>().unwrap();
            let milli = Milli {
                value: milli,
                saturated: false,
            };
            assert_eq!(
                (quantity.to_string(), quantity.milli_value()),
                (canonical.into(), milli),
                "{text:?}"
            );
        }
        for (text, value) in [
            ("1e30", i64::MAX),
            ("-1e300", i64::MIN),
            ("99999999999999999999Ei", i64::MAX),
        ] {
            let milli = text.parse::<Quantity>().unwrap().milli_value();
            assert_eq!(
                milli,
                Milli {
                    value,
                    saturated: true
                },
                "{text:?}"
            );
        }
        assert_eq!("1000E".parse::<Quantity>().unwrap().to_string(), "1e21");
        assert_eq!(
            "0e310".parse::<Quantity>().unwrap().approx_f64().to_bits(),
            0
        );
    }

    #[test]
    fn a_text_that_is_not_a_quantity_is_refused_with_its_reason() {
        assert_eq!("".parse::<Quantity>(), Err(QuantityError::Empty));
        for text in ["1 ", " 1", "1..2", "Inf", "1_000", "1e3.5", "1€"] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(QuantityError::NotANumber(text.into()))
            );
        }
        for text in [
            "1K",
            "1ki",
            "1e",
            "1Kim",
            "1e+",
            "1e99999999999",
            "1m5",
            "--1",
        ] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(QuantityError::UnknownSuffix(text.into()))
            );
        }
    }

    #[test]
    fn quantity_parse() {
        bolero::check!()
            .with_type::<Vec<u8>>()
            .for_each(|bytes| reads_back(bytes));
    }

    /// Checks that an accepted text can be printed and read again as the same amount.
    fn reads_back(bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let Ok(quantity) = text.parse::<Quantity>() else {
            return;
        };
        let again = quantity.to_string().parse::<Quantity>();
        assert_eq!(again.as_ref(), Ok(&quantity), "{text:?}");
        assert!(!quantity.approx_f64().is_nan());
    }

    proptest! {
        #[test]
        fn a_printed_quantity_reads_back_as_the_same_amount(
            text in "[-+]?[0-9]{0,24}(\\.[0-9]{0,14})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,3})?",
        ) {
            reads_back(text.as_bytes());
        }

        #[test]
        fn thousandths_survive_both_notations(milli in any::<i64>(), binary in any::<bool>()) {
            let format = if binary { Format::BinarySi } else { Format::DecimalSi };
            let quantity = Quantity::from_milli(milli, format);
            prop_assert_eq!(quantity.milli_value(), Milli { value: milli, saturated: false });
            let again = quantity.to_string().parse::<Quantity>().unwrap();
            prop_assert_eq!(again, quantity);
        }
    }
}
