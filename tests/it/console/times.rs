//! Exact times in the zone of the visitor, in a real browser.

use chrono::{DateTime, FixedOffset, Utc};
use serde_json::json;

use super::live::{browser, shows};
use super::permissions::{asked, asking};
use crate::support::{ADMIN, Stage, Visitor, upstream};

/// Times on a page: the moment and the hover text of each.
const TIMES: &str =
    "JSON.stringify([...document.querySelectorAll('main time')].map(time => [time.dateTime, time.title]))";
/// Zones, with their distance from UTC in hours. In one of the outermost two it is always another day than in UTC.
const ZONES: [(&str, i32); 4] =
    [("UTC", 0), ("Pacific/Kiritimati", 14), ("Pacific/Pago_Pago", -11), ("Africa/Lagos", 1)];

/// The text of a time, as a visitor has it who is so many hours before UTC.
fn expected(stamp: &str, hours: i32) -> String {
    let at: DateTime<Utc> = stamp.parse().unwrap();
    let here = at.with_timezone(&FixedOffset::east_opt(hours * 3600).unwrap());
    let exact = at.format("%Y-%m-%d %H:%M:%S UTC");
    let local = match (hours, here.date_naive() == at.date_naive()) {
        (0, _) => return exact.to_string(),
        (_, true) => here.format("%H:%M:%S"),
        (_, false) => here.format("%Y-%m-%d %H:%M:%S"),
    };
    format!("{exact}, {local} here")
}

#[tokio::test]
async fn exact_times_are_those_of_the_visitor_too() {
    let stage = Stage::with(&[ADMIN]).await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    asked(&agent, &json!({"n": 0})).await;
    let record = tenant.records("type=tool_call", 1).await.remove(0);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = browser(&visitor).await;
    for (n, (zone, hours)) in ZONES.into_iter().enumerate() {
        browser.set_zone(zone).await;
        browser.open(&format!("{}/console/activity?type=tool_call", visitor.base)).await;
        // also those that come later, beside those that stay
        asked(&agent, &json!({"n": n + 1})).await;
        let rows = "document.querySelectorAll('[data-live] tbody tr').length";
        shows(&mut browser, rows, json!(n + 2)).await;
        let times = browser.evaluate(TIMES).await;
        let times: Vec<(String, String)> = serde_json::from_str(times.as_str().unwrap()).unwrap();
        assert_eq!(times.len(), n + 2);
        for (stamp, title) in times {
            assert_eq!(title, expected(&stamp, hours), "{zone}");
        }
        browser.open(&format!("{}/console/activity/{}", visitor.base, record["id"].as_str().unwrap())).await;
        let stamp = browser.evaluate("document.querySelector('main time').dateTime").await;
        let shown = expected(stamp.as_str().unwrap(), hours);
        let text = browser.evaluate("document.querySelector('h1 + p').textContent").await;
        assert!(text.as_str().unwrap().ends_with(&format!(", {shown}")), "{zone}: {text} {shown}");
    }
    browser.close().await;
}
