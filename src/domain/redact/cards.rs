//! Detection of payment card numbers.

use super::scan::Scan;

const DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// Shortest first group of a number written in groups (`4111 1111 …`, `3782 822463 …`), in digits.
const FIRST_GROUP_MIN: usize = 4;

/// Shortest group between others, in digits. Shorter ones are dates and lists of small numbers.
const MIDDLE_GROUP_MIN: usize = 3;

/// Shortest run of hexadecimal digits, with a letter among them, that is an identifier: of traces, requests, objects,
/// or a digest. One such run in 400 has digits that pass for a card.
const HEX_ID_MIN: usize = 24;

/// Length of a UUID, in characters.
const UUID_LENGTH: usize = 36;
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];

/// Masks a card number whose first digit is at `at`: 13 to 19 digits that pass the Luhn check. Groups may be divided
/// by single spaces or dashes, of one kind. Parts of a longer run of digits or of an identifier are not masked.
///
/// Called for the leading digits that card networks use; millisecond times and most generated numbers start with
/// others. Decimal fractions are not cards.
pub(super) fn card(scan: &mut Scan<'_>, at: usize) {
    let before = scan.before(at, 1);
    let fraction = before == b'.' && scan.before(at, 2).is_ascii_digit();
    if before.is_ascii_digit() || fraction || !scan.at(at + 1).is_ascii_digit() {
        return;
    }
    let digit = |byte: u8| byte.is_ascii_digit();
    let mut end = scan.run(at, digit);
    let mut count = end - at;
    if count < FIRST_GROUP_MIN || count > *DIGITS.end() {
        return;
    }
    let separator = scan.at(end);
    let mut found = None;
    loop {
        let decimal = scan.at(end) == b'.' && scan.at(end + 1).is_ascii_digit();
        if DIGITS.contains(&count) && !decimal && luhn(scan.bytes.get(at..end).unwrap_or_default()) {
            found = Some(end);
        }
        if !matches!(separator, b' ' | b'-') || scan.at(end) != separator {
            break;
        }
        let next = scan.run(end + 1, digit);
        let length = next - end - 1;
        count += length;
        let last = scan.at(next) != separator;
        if length == 0 || count > *DIGITS.end() || (length < MIDDLE_GROUP_MIN && !last) {
            break;
        }
        end = next;
    }
    if let Some(end) = found.filter(|end| !in_id(scan, at, *end)) {
        scan.mask(at..end);
    }
}

/// Returns whether the digits from `at` to `end` are part of an identifier: a hexadecimal one, or a UUID if they are in
/// groups.
fn in_id(scan: &Scan<'_>, at: usize, end: usize) -> bool {
    let found = scan.bytes.get(at..end).unwrap_or_default();
    if found.contains(&b'-') {
        return in_uuid(scan, at, end);
    }
    !found.contains(&b' ') && in_hex_id(scan, at, end)
}

/// Returns whether the digits from `at` to `end` are part of a UUID. Reads no further than a UUID may reach.
fn in_uuid(scan: &Scan<'_>, at: usize, end: usize) -> bool {
    let belongs = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    let before = (1..=UUID_LENGTH).take_while(|back| belongs(&scan.before(at, *back))).count();
    let after = (0..UUID_LENGTH).take_while(|ahead| belongs(&scan.at(end + ahead))).count();
    let whole = scan.bytes.get(at - before..end + after).unwrap_or_default();
    let is_dash = |place: usize| UUID_DASHES.contains(&place);
    whole.len() == UUID_LENGTH
        && whole.iter().enumerate().all(|(place, byte)| (*byte == b'-') == is_dash(place))
}

/// Returns whether the digits from `at` to `end` are part of an identifier in hexadecimal. Reads no further than
/// necessary, as runs may be long.
fn in_hex_id(scan: &Scan<'_>, at: usize, end: usize) -> bool {
    let before = (1..=HEX_ID_MIN).take_while(|back| scan.before(at, *back).is_ascii_hexdigit()).count();
    let after = (0..HEX_ID_MIN).take_while(|ahead| scan.at(end + ahead).is_ascii_hexdigit()).count();
    before + after > 0 && before + (end - at) + after >= HEX_ID_MIN
}

/// Returns whether the digits of `text` pass the Luhn check of card numbers.
fn luhn(text: &[u8]) -> bool {
    let digits = text.iter().rev().filter(|byte| byte.is_ascii_digit()).map(|byte| u32::from(byte - b'0'));
    let sum: u32 = digits
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => digit,
            (_, double @ 10..) => double - 9,
            (_, double) => double,
        })
        .sum();
    sum.is_multiple_of(10)
}
