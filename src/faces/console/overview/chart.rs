//! Chart of the calls of an hour: a bar for each minute, drawn by the server, and the same numbers as a table.

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::MinuteCalls;

/// Minutes of the chart, the last of which is the one of the page.
pub(in crate::faces::console) const MINUTES: i64 = 60;
/// Width of a minute in the drawing, in its own units.
const MINUTE_WIDTH: i64 = 12;
/// Width of a bar, in the drawing's units.
const BAR_WIDTH: i64 = 9;
/// Height of the drawing, in its own units.
const HEIGHT: i64 = 1000;

/// Part of a bar: the calls of one outcome.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::faces::console) struct BarPart {
    /// Class of the outcome, which gives the colour.
    pub(in crate::faces::console) class: &'static str,
    /// Left edge, in the drawing's units.
    pub(in crate::faces::console) x: i64,
    /// Upper edge, in the drawing's units.
    pub(in crate::faces::console) y: i64,
    /// Height, in the drawing's units.
    pub(in crate::faces::console) height: i64,
}

/// Numbers of a minute in the table.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::faces::console) struct MinuteRow {
    /// Start of the minute, UTC.
    pub(in crate::faces::console) start: String,
    /// Calls that succeeded.
    pub(in crate::faces::console) succeeded: i64,
    /// Calls that ran and did not succeed.
    pub(in crate::faces::console) failed: i64,
    /// Calls that were not run.
    pub(in crate::faces::console) refused: i64,
    /// Calls that were cancelled or are under way.
    pub(in crate::faces::console) other: i64,
}

/// Outcome in the legend.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::faces::console) struct OutcomeTotal {
    /// Class of the outcome.
    pub(in crate::faces::console) class: &'static str,
    /// Outcome in words.
    pub(in crate::faces::console) name: &'static str,
    /// Calls of the hour.
    pub(in crate::faces::console) calls: i64,
}

/// Chart of an hour.
#[derive(Debug)]
pub(in crate::faces::console) struct CallChart {
    /// Width of the drawing, in its own units.
    pub(in crate::faces::console) width: i64,
    /// Height of the drawing, in its own units.
    pub(in crate::faces::console) height: i64,
    /// Width of a bar, in the drawing's units.
    pub(in crate::faces::console) bar: i64,
    /// Parts of the bars.
    pub(in crate::faces::console) parts: Vec<BarPart>,
    /// Calls of the busiest minute.
    pub(in crate::faces::console) most: i64,
    /// Calls of the hour.
    pub(in crate::faces::console) total: i64,
    /// Calls of the hour by outcome.
    pub(in crate::faces::console) totals: Vec<OutcomeTotal>,
    /// Minutes with calls, the newest first.
    pub(in crate::faces::console) rows: Vec<MinuteRow>,
}

/// Returns the time range of the chart: its start, inclusive, and its end, exclusive. Both are whole minutes.
pub(in crate::faces::console) fn range(now: DateTime<Utc>) -> (DateTime<Utc>, DateTime<Utc>) {
    let begun = now - TimeDelta::seconds(now.timestamp().rem_euclid(60));
    let end = DateTime::from_timestamp(begun.timestamp(), 0).unwrap_or(begun) + TimeDelta::minutes(1);
    (end - TimeDelta::minutes(MINUTES), end)
}

/// Returns the outcomes of a minute from the lowest part of a bar to the highest: class, name and number.
fn outcomes(minute: &MinuteCalls) -> [(&'static str, &'static str, i64); 4] {
    [
        ("succeeded", "succeeded", minute.succeeded),
        ("other", "cancelled or under way", minute.other),
        ("refused", "refused, or told to wait", minute.refused),
        ("failed", "failed", minute.failed),
    ]
}

impl CallChart {
    /// Draws the calls of the minutes from `start` on.
    pub(in crate::faces::console) fn of(minutes: &[MinuteCalls], start: DateTime<Utc>) -> CallChart {
        let calls = |minute: &MinuteCalls| outcomes(minute).iter().map(|(_, _, calls)| calls).sum::<i64>();
        let most = minutes.iter().map(calls).max().unwrap_or_default();
        let mut sum = MinuteCalls::default();
        for minute in minutes {
            sum.succeeded += minute.succeeded;
            sum.failed += minute.failed;
            sum.refused += minute.refused;
            sum.other += minute.other;
        }
        let totals = outcomes(&sum).map(|(class, name, calls)| OutcomeTotal { class, name, calls });
        CallChart {
            width: MINUTES * MINUTE_WIDTH,
            height: HEIGHT,
            bar: BAR_WIDTH,
            parts: minutes.iter().flat_map(|minute| bar(minute, most)).collect(),
            most,
            total: calls(&sum),
            totals: totals.into(),
            rows: minutes.iter().rev().map(|minute| row(minute, start)).collect(),
        }
    }
}

/// Returns the parts of the bar of a minute, where `most` calls are the whole height.
fn bar(minute: &MinuteCalls, most: i64) -> Vec<BarPart> {
    let x = i64::from(minute.minute) * MINUTE_WIDTH;
    let mut below = 0;
    let mut parts = Vec::new();
    for (class, _, calls) in outcomes(minute).into_iter().filter(|(_, _, calls)| *calls > 0) {
        let edge = |calls: i64| HEIGHT - calls * HEIGHT / most.max(1);
        let (lower, upper) = (edge(below), edge(below + calls));
        parts.push(BarPart { class, x, y: upper, height: lower - upper });
        below += calls;
    }
    parts
}

fn row(minute: &MinuteCalls, start: DateTime<Utc>) -> MinuteRow {
    let start = start + TimeDelta::minutes(minute.minute.into());
    let MinuteCalls { succeeded, failed, refused, other, .. } = *minute;
    MinuteRow { start: start.format("%H:%M").to_string(), succeeded, failed, refused, other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_ends_with_the_minute_of_the_page() {
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
        let hour = (at("2026-01-31T11:01:00Z"), at("2026-01-31T12:01:00Z"));
        assert_eq!(range(at("2026-01-31T12:00:00Z")), hour);
        assert_eq!(range(at("2026-01-31T12:00:59.999Z")), hour);
    }

    #[test]
    fn bars_are_stacked_and_the_busiest_fills_the_height() {
        let start = DateTime::from_timestamp(1_769_860_800, 0).unwrap();
        let minutes = [
            MinuteCalls { minute: 0, succeeded: 1, ..MinuteCalls::default() },
            MinuteCalls { minute: 59, succeeded: 2, failed: 1, refused: 1, other: 0 },
        ];
        let chart = CallChart::of(&minutes, start);
        let part = |class, x, y, height| BarPart { class, x, y, height };
        assert_eq!(
            chart.parts,
            [
                part("succeeded", 0, 750, 250),
                part("succeeded", 708, 500, 500),
                part("refused", 708, 250, 250),
                part("failed", 708, 0, 250),
            ]
        );
        assert_eq!((chart.most, chart.total, chart.width), (4, 5, 720));
        let totals: Vec<i64> = chart.totals.iter().map(|total| total.calls).collect();
        assert_eq!(totals, [3, 0, 1, 1]);
        let rows: Vec<(&str, i64)> =
            chart.rows.iter().map(|row| (row.start.as_str(), row.succeeded)).collect();
        assert_eq!(rows, [("12:59", 2), ("12:00", 1)]);
        let none = CallChart::of(&[], start);
        assert_eq!((none.parts.len(), none.total), (0, 0));
    }
}
