//! Dates and times of controls as numbers: milliseconds since 1970, months since 1970, or milliseconds of a
//! day.

use super::super::form::ControlKind;

const DAY_MS: f64 = 86_400_000.0;

/// Parses the value of a date or time control; `None` for text that is none.
pub(super) fn parse(kind: ControlKind, text: &str) -> Option<f64> {
    match kind {
        ControlKind::Date => date(text).map(|days| days as f64 * DAY_MS),
        ControlKind::Month => {
            let (year, month) = month(text)?;
            Some(((year - 1970) * 12 + month - 1) as f64)
        }
        ControlKind::Week => week(text).map(|days| days as f64 * DAY_MS),
        ControlKind::Time => time(text).map(|ms| ms as f64),
        ControlKind::DateTimeLocal => {
            let (day, at) = text.split_once(['T', ' '])?;
            Some(date(day)? as f64 * DAY_MS + time(at)? as f64)
        }
        _ => None,
    }
}

/// Returns a date with a time in its normal form: `T` between both, and no zeros at the end of the time.
pub(super) fn normal_date_time(text: &str) -> Option<String> {
    let (day, at) = text.split_once(['T', ' '])?;
    date(day)?;
    let ms = time(at)?;
    let (seconds, rest) = (ms / 1000, ms % 1000);
    let mut out = format!("{day}T{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
    if seconds % 60 != 0 || rest != 0 {
        out.push_str(&format!(":{:02}", seconds % 60));
    }
    if rest != 0 {
        out.push_str(format!(".{rest:03}").trim_end_matches('0'));
    }
    Some(out)
}

fn digits(text: &str, least: usize, most: usize) -> Option<i64> {
    let is_number = (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn year(text: &str) -> Option<i64> {
    // the last year that ECMAScript's dates know
    digits(text, 4, 6).filter(|year| (1..=275_760).contains(year))
}

fn month(text: &str) -> Option<(i64, i64)> {
    let (first, second) = text.split_once('-')?;
    let month = digits(second, 2, 2).filter(|month| (1..=12).contains(month))?;
    Some((year(first)?, month))
}

/// Parses a date into days since 1970.
fn date(text: &str) -> Option<i64> {
    let (before, day) = text.rsplit_once('-')?;
    let (year, month) = month(before)?;
    let day = digits(day, 2, 2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=last).contains(&day).then(|| days(year, month, day))
}

/// Returns the days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // years begin in March, so that the leap day is the last one
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// Returns the day of the week, 0 for Monday.
fn weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7)
}

/// Parses a week into the days from 1970 to its Monday.
fn week(text: &str) -> Option<i64> {
    let (first, second) = text.split_once("-W")?;
    let (year, week) = (year(first)?, digits(second, 2, 2)?);
    // the first week is the one with 4 January
    let monday = |year| {
        let day = days(year, 1, 4);
        day - weekday(day)
    };
    let weeks = (monday(year + 1) - monday(year)) / 7;
    (1..=weeks).contains(&week).then(|| monday(year) + 7 * (week - 1))
}

/// Parses a time into milliseconds of the day.
fn time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let hour = digits(parts.next()?, 2, 2).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next()?, 2, 2).filter(|minute| *minute < 60)?;
    let Some(rest) = parts.next() else { return Some((hour * 60 + minute) * 60_000) };
    let (second, fraction) = match rest.split_once('.') {
        Some((second, fraction)) => {
            let scale = 10_i64.checked_pow(3_u32.checked_sub(fraction.len() as u32)?)?;
            (second, digits(fraction, 1, 3)? * scale)
        }
        None => (rest, 0),
    };
    let second = digits(second, 2, 2).filter(|second| *second < 60)?;
    Some(((hour * 60 + minute) * 60 + second) * 1000 + fraction)
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, NaiveDate};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_and_times_are_those_of_the_standard() {
        for (kind, text, value) in [
            (ControlKind::Date, "1970-01-02", Some(DAY_MS)),
            (ControlKind::Date, "2024-02-29", Some(19_782.0 * DAY_MS)),
            (ControlKind::Date, "2023-02-29", None),
            (ControlKind::Date, "0000-01-01", None),
            (ControlKind::Date, "24-01-01", None),
            (ControlKind::Date, "2024-1-01", None),
            (ControlKind::Month, "1971-03", Some(14.0)),
            (ControlKind::Month, "1971-13", None),
            (ControlKind::Week, "2020-W53", Some(18_624.0 * DAY_MS)),
            (ControlKind::Week, "2021-W53", None),
            (ControlKind::Week, "2021-w01", None),
            (ControlKind::Time, "01:02", Some(3_720_000.0)),
            (ControlKind::Time, "01:02:03.5", Some(3_723_500.0)),
            (ControlKind::Time, "24:00", None),
            (ControlKind::Time, "01:02:03.", None),
            (ControlKind::Time, "01:02:03.1234", None),
            (ControlKind::DateTimeLocal, "1970-01-02T00:01", Some(DAY_MS + 60_000.0)),
            (ControlKind::DateTimeLocal, "1970-01-02 00:01", Some(DAY_MS + 60_000.0)),
            (ControlKind::DateTimeLocal, "1970-01-02", None),
            (ControlKind::Text, "x", None),
        ] {
            assert_eq!(parse(kind, text), value, "{text}");
        }
        let normal = normal_date_time("2024-01-01 10:20:00.0").unwrap();
        assert_eq!(normal, "2024-01-01T10:20");
        assert_eq!(normal_date_time("2024-01-01T10:20:30.050").unwrap(), "2024-01-01T10:20:30.05");
    }

    proptest! {
        #[test]
        fn dates_and_weeks_agree_with_a_calendar(day in -719_162_i64..2_932_896) {
            let date = NaiveDate::from_num_days_from_ce_opt(i32::try_from(day + 719_163).unwrap()).unwrap();
            let text = format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day());
            prop_assert_eq!(parse(ControlKind::Date, &text), Some(day as f64 * DAY_MS));
            let iso = date.iso_week();
            if iso.year() > 0 {
                let text = format!("{:04}-W{:02}", iso.year(), iso.week());
                prop_assert_eq!(week(&text), Some(day - weekday(day)));
            }
        }

        #[test]
        fn any_text_is_read(text in "[0-9W:T. -]{0,20}") {
            use ControlKind::{Date, DateTimeLocal, Month, Time, Week};
            for kind in [Date, Month, Week, Time, DateTimeLocal] {
                parse(kind, &text);
            }
        }
    }
}
