//! `GET /activity/summary`: counts of the records of the last hour, day, week or month.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::domain::annotations::Tier;
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::{ParamNames, Params};
use crate::faces::rest::show;
use crate::faces::rest::show::RestAnswer;
use crate::store::{ActivitySummary, CallSummary, DecisionCount, SummaryScope};

/// Parameters of a summary.
pub(in crate::faces::rest) const PARAMS: ParamNames = &["period", "tier", "not_read"];
/// Values of `period`; the first is the default.
const PERIODS: [&str; 4] = ["24h", "1h", "7d", "30d"];

#[derive(Serialize)]
struct Shown<'a> {
    period: &'a str,
    start_time: String,
    end_time: String,
    total: i64,
    by_type: BTreeMap<&'a str, i64>,
    by_status: BTreeMap<&'a str, i64>,
    /// Counts by intent, of the records that have one: calls.
    by_intent_type: BTreeMap<&'a str, i64>,
    /// Counts by the tier of the tool, of the records that have one.
    by_tier: BTreeMap<&'a str, i64>,
    top_tools: Vec<Calls<'a>>,
    top_servers: Vec<Calls<'a>>,
    /// Counts of calls that a policy did not simply allow.
    by_decision: BTreeMap<&'a str, i64>,
    top_decisions: Vec<Decided<'a>>,
}

#[derive(Serialize)]
struct Decided<'a> {
    decision: &'a str,
    rule: Option<&'a str>,
    server: Option<&'a str>,
    tool: Option<&'a str>,
    calls: i64,
}

#[derive(Serialize)]
struct Calls<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    calls: i64,
    failed: i64,
    refused: i64,
    /// Failed calls divided by the calls that ran, 0 to 1.
    error_rate: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
}

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let period = params.one_of("period", &PERIODS)?;
    let period = period.unwrap_or(PERIODS[0]);
    let end = exchange.attempt.started_at;
    let start = end - length(period);
    let scope = SummaryScope {
        key: None,
        tier: params.one_of("tier", &Tier::ALL)?,
        not_read: params.flag("not_read")?,
        start,
        end,
    };
    let summary = exchange.gateway().log.summarize_activity(exchange.caller(), scope).await?;
    show::ok(&shown(period, start, end, &summary))
}

fn length(period: &str) -> TimeDelta {
    match period {
        "1h" => TimeDelta::hours(1),
        "7d" => TimeDelta::days(7),
        "30d" => TimeDelta::days(30),
        _ => TimeDelta::hours(24),
    }
}

fn shown<'a>(
    period: &'a str,
    start: DateTime<Utc>,
    end: DateTime<Utc>,
    summary: &'a ActivitySummary,
) -> Shown<'a> {
    let mut shown = Shown {
        period,
        start_time: show::time(start),
        end_time: show::time(end),
        total: 0,
        by_type: BTreeMap::new(),
        by_status: BTreeMap::new(),
        by_intent_type: BTreeMap::new(),
        by_tier: BTreeMap::new(),
        top_tools: summary.tools.iter().map(calls).collect(),
        top_servers: summary.servers.iter().map(calls).collect(),
        by_decision: summary.by_decision.iter().map(|(decision, calls)| (&**decision, *calls)).collect(),
        top_decisions: summary.decisions.iter().map(decided).collect(),
    };
    for counted in &summary.counts {
        shown.total += counted.count;
        *shown.by_type.entry(&counted.kind).or_default() += counted.count;
        *shown.by_status.entry(&counted.status).or_default() += counted.count;
        if let Some(intent) = &counted.intent_type {
            *shown.by_intent_type.entry(intent).or_default() += counted.count;
        }
        if let Some(tier) = &counted.tier {
            *shown.by_tier.entry(tier).or_default() += counted.count;
        }
    }
    shown
}

fn decided(of: &DecisionCount) -> Decided<'_> {
    Decided {
        decision: &of.decision,
        rule: of.rule.as_deref(),
        server: of.server.as_deref(),
        tool: of.tool.as_deref(),
        calls: of.calls,
    }
}

fn calls(of: &CallSummary) -> Calls<'_> {
    let ran = of.calls - of.refused;
    Calls {
        server: &of.server,
        tool: of.tool.as_deref(),
        calls: of.calls,
        failed: of.failed,
        refused: of.refused,
        error_rate: if ran == 0 { 0.0 } else { of.failed as f64 / ran as f64 },
        p50_ms: of.p50_ms,
        p95_ms: of.p95_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ActivityCount;

    #[test]
    fn counts_are_summed_up() {
        let count = |kind: &str, status: &str, [intent, tier]: [Option<&str>; 2], count| ActivityCount {
            kind: kind.into(),
            status: status.into(),
            intent_type: intent.map(Into::into),
            tier: tier.map(Into::into),
            count,
        };
        let tool = CallSummary {
            server: "s".into(),
            tool: Some("t".into()),
            calls: 10,
            failed: 2,
            refused: 5,
            p50_ms: Some(1.0),
            p95_ms: None,
        };
        let summary = ActivitySummary {
            counts: vec![
                count("tool_call", "success", [Some("read"), Some("unknown")], 3),
                count("tool_call", "error", [Some("write"), Some("write")], 2),
                count("admin", "success", [None, None], 1),
            ],
            servers: vec![CallSummary { tool: None, calls: 5, failed: 0, ..tool.clone() }],
            slowest: vec![tool.clone()],
            tools: vec![tool],
            by_decision: vec![("denied".into(), 2)],
            decisions: vec![DecisionCount {
                decision: "denied".into(),
                rule: None,
                server: Some("s".into()),
                tool: Some("t".into()),
                calls: 2,
            }],
        };
        let shown =
            serde_json::to_value(shown("1h", DateTime::UNIX_EPOCH, DateTime::UNIX_EPOCH, &summary)).unwrap();
        insta::assert_json_snapshot!(shown, @r#"
        {
          "by_decision": {
            "denied": 2
          },
          "by_intent_type": {
            "read": 3,
            "write": 2
          },
          "by_status": {
            "error": 2,
            "success": 4
          },
          "by_tier": {
            "unknown": 3,
            "write": 2
          },
          "by_type": {
            "admin": 1,
            "tool_call": 5
          },
          "end_time": "1970-01-01T00:00:00.000Z",
          "period": "1h",
          "start_time": "1970-01-01T00:00:00.000Z",
          "top_decisions": [
            {
              "calls": 2,
              "decision": "denied",
              "rule": null,
              "server": "s",
              "tool": "t"
            }
          ],
          "top_servers": [
            {
              "calls": 5,
              "error_rate": 0.0,
              "failed": 0,
              "p50_ms": 1.0,
              "p95_ms": null,
              "refused": 5,
              "server": "s"
            }
          ],
          "top_tools": [
            {
              "calls": 10,
              "error_rate": 0.4,
              "failed": 2,
              "p50_ms": 1.0,
              "p95_ms": null,
              "refused": 5,
              "server": "s",
              "tool": "t"
            }
          ],
          "total": 6
        }
        "#);
    }
}
