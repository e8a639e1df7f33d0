//! JSON numbers as written: digits and an exponent, of any size, never expanded and never rounded.

use std::cmp::Ordering;

use super::meter::Stop;

/// Most digits of an exponent, without leading zeros.
const EXPONENT_DIGITS_MAX: usize = 17;

/// A JSON number. Its value is `0.d1d2d3… × 10^point`, where the digits neither begin nor end with a zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    /// Digits left out at the front of `whole` and `fraction` together.
    skipped: usize,
    len: usize,
    point: i64,
}

impl<'a> Number<'a> {
    /// Reads a number's text, known to be JSON.
    ///
    /// # Errors
    /// [`Stop::Exponent`] when the exponent has more than 17 digits.
    pub(super) fn read(text: &'a str) -> Result<Number<'a>, Stop> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            None => (text, ""),
            Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default()),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (whole, fraction) = (whole.as_bytes(), fraction.as_bytes());
        let total = whole.len() + fraction.len();
        let digits = || whole.iter().chain(fraction);
        let skipped = digits().take_while(|digit| **digit == b'0').count();
        let zeros = digits().rev().take_while(|digit| **digit == b'0').count();
        let len = total.saturating_sub(skipped + zeros);
        if len == 0 {
            return Ok(Number { is_negative: false, whole, fraction, skipped: total, len: 0, point: 0 });
        }
        let point = whole.len() as i64 - skipped as i64 + read_exponent(exponent)?;
        Ok(Number { is_negative, whole, fraction, skipped, len, point })
    }

    fn digits(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.whole.iter().chain(self.fraction).copied().skip(self.skipped).take(self.len)
    }

    /// Returns whether the number has no fraction: `1.0` and `1e400` are integers.
    pub(super) fn is_integer(&self) -> bool {
        self.len as i64 <= self.point.max(0)
    }

    /// Feeds bytes to `to` that are equal for equal numbers, and different for others.
    pub(super) fn feed(&self, mut to: impl FnMut(&[u8])) {
        to(&[u8::from(self.is_negative)]);
        to(&self.point.to_le_bytes());
        let mut block = [0; 64];
        let mut digits = self.digits();
        loop {
            let filled = block.iter_mut().zip(&mut digits).map(|(slot, digit)| *slot = digit).count();
            to(block.get(..filled).unwrap_or_default());
            if filled < block.len() {
                return;
            }
        }
    }

    /// Returns the number as a count: `None` for a negative number or a fraction, [`u64::MAX`] for a larger
    /// one.
    pub(super) fn count(&self) -> Option<u64> {
        if self.is_negative || !self.is_integer() {
            return None;
        }
        if self.point > 19 {
            return Some(u64::MAX);
        }
        let places = self.point.max(0) as usize;
        let digits = self.digits().chain(std::iter::repeat(b'0')).take(places);
        let value = digits.fold(0_u128, |value, digit| value * 10 + u128::from(digit - b'0'));
        Some(u64::try_from(value).unwrap_or(u64::MAX))
    }

    /// Returns the number as a divisor for [`Number::is_multiple_of`]. `None` unless the number is above zero
    /// and has at most 18 significant digits.
    pub(super) fn divisor(&self) -> Option<Divisor> {
        if self.is_negative || self.len == 0 || self.len > 18 {
            return None;
        }
        let value = self.digits().fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
        Some(Divisor { value, exponent: self.point - self.len as i64 })
    }

    /// Returns whether the number is an integral multiple of `divisor`, computed exactly.
    pub(super) fn is_multiple_of(&self, divisor: Divisor) -> bool {
        if self.len == 0 {
            return true;
        }
        // the digits have no zero at their end: a missing power of ten makes a multiple impossible
        let Ok(mut tens) = u64::try_from(self.point - self.len as i64 - divisor.exponent) else {
            return false;
        };
        let modulus = u128::from(divisor.value);
        let mut rest = self.digits().fold(0, |rest, digit| (rest * 10 + u128::from(digit - b'0')) % modulus);
        let mut power = 10 % modulus;
        while tens > 0 {
            if tens % 2 == 1 {
                rest = rest * power % modulus;
            }
            power = power * power % modulus;
            tens /= 2;
        }
        rest == 0
    }
}

/// Value of a `multipleOf`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    value: u64,
    exponent: i64,
}

impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number<'_> {}

impl PartialOrd for Number<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.len, number.is_negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        };
        let size = || {
            let is_zero = self.len == 0;
            if is_zero { Ordering::Equal } else { self.point.cmp(&other.point) }
                .then_with(|| self.digits().cmp(other.digits()))
        };
        sign(self).cmp(&sign(other)).then_with(|| if self.is_negative { size().reverse() } else { size() })
    }
}

fn read_exponent(text: &str) -> Result<i64, Stop> {
    let (is_negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    let digits = digits.trim_start_matches('0');
    if digits.len() > EXPONENT_DIGITS_MAX {
        return Err(Stop::Exponent);
    }
    let value = digits.parse::<i64>().unwrap_or(0);
    Ok(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Number<'_> {
        Number::read(text).expect("is read")
    }

    #[test]
    fn numbers_compare_exactly_at_any_size() {
        let ascending = [
            "-1e400",
            "-9007199254740993",
            "-9007199254740992",
            "-1.5",
            "-0.1e-400",
            "0",
            "1e-400",
            "2e-400",
            "0.1",
            "0.10000000000000000000000000000000000000001",
            "1",
            "9007199254740992",
            "9007199254740993",
            "123456789012345678901234567890",
            "1e400",
            "10000000000000000000001e390",
            "1e99999999999999999",
        ];
        for (at, one) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(number(one).cmp(&number(other)), at.cmp(&other_at), "{one} {other}");
            }
        }
        for (one, other) in [("1", "1.0"), ("100", "1e2"), ("0.001e3", "1"), ("-0", "0.0e9"), ("10e-1", "1")]
        {
            assert_eq!(number(one), number(other));
        }
        assert!(Number::read("1e100000000000000000").is_err());
        assert!(Number::read("1e00000000000000000000000001").is_ok());
    }

    #[test]
    fn integers_counts_and_multiples() {
        for (text, expected) in
            [("1.0", true), ("1e400", true), ("1.5", false), ("15e-1", false), ("0e-9", true)]
        {
            assert_eq!(number(text).is_integer(), expected, "{text}");
        }
        for (text, expected) in
            [("0", Some(0)), ("2.0", Some(2)), ("1e3", Some(1000)), ("-1", None), ("0.5", None)]
        {
            assert_eq!(number(text).count(), expected, "{text}");
        }
        assert_eq!(number("1e400").count(), Some(u64::MAX));
        assert_eq!(number("18446744073709551615").count(), Some(u64::MAX));
        for (value, of, expected) in [
            ("0.0075", "0.0001", true),
            ("0.00751", "0.0001", false),
            ("1e308", "0.123456789", false),
            ("1e400", "7", false),
            ("7e400", "7", true),
            ("12391239123", "1e-8", true),
            ("9007199254740993", "2", false),
            ("4.5", "1.5", true),
            ("35", "1.5", false),
            ("10", "100", false),
            ("0", "3", true),
        ] {
            let divisor = number(of).divisor().expect("is a divisor");
            assert_eq!(number(value).is_multiple_of(divisor), expected, "{value} of {of}");
        }
        assert!(number("0").divisor().is_none() && number("-1").divisor().is_none());
    }

    proptest! {
        #[test]
        fn small_numbers_agree_with_integers(a in -2000_i64..2000, b in 1_i64..60, shift in 0_u32..4) {
            // a × 10^-shift and b × 10^-shift, written with a fraction
            let written = |n: i64| {
                let (digits, tens) = (n.unsigned_abs(), 10_u64.pow(shift));
                let sign = if n < 0 { "-" } else { "" };
                let width = shift as usize;
                if shift == 0 { format!("{n}") } else { format!("{sign}{}.{:0width$}", digits / tens, digits % tens) }
            };
            let (x, y) = (written(a), written(b));
            prop_assert_eq!(number(&x).cmp(&number(&y)), a.cmp(&b));
            prop_assert_eq!(number(&x).is_multiple_of(number(&y).divisor().unwrap()), a % b == 0);
            prop_assert_eq!(number(&x).is_integer(), a % 10_i64.pow(shift) == 0);
        }
    }
}
