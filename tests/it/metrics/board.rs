//! The dashboard and the alerts ask for nothing that a gateway does not tell, and everything it tells is written down.

use std::fs;
use std::path::{Path, PathBuf};

use mcpproxy::domain::measure::code_name;
use mcpproxy::domain::refusal::Code;
use serde_json::{Value, json};

use super::promql::asked;
use super::{busy, promtool};
use crate::support::upstream::Say;
use crate::support::{ADMIN, Mcp, Page, Stage, Tool, Upstream};

/// Labels that scraping adds.
const OF_SCRAPING: [&str; 2] = ["job", "instance"];

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn board() -> Value {
    serde_json::from_str(&fs::read_to_string(shipped("helm/mcpproxy/dashboards/mcpproxy.json")).unwrap())
        .unwrap()
}

/// Every query of the dashboard, with the title of its panel and its legend.
fn queries(board: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut queries = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            if target["expr"].is_string() {
                queries.push((text(&panel["title"]), text(&target["expr"]), text(&target["legendFormat"])));
            }
        }
    }
    queries
}

/// Every rule's query, with its name.
fn rules() -> Vec<(String, String)> {
    let alerts = fs::read_to_string(shipped("helm/mcpproxy/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&alerts).unwrap();
    let groups = alerts["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules
        .map(|rule| (rule["alert"].as_str().unwrap().to_owned(), rule["expr"].as_str().unwrap().to_owned()))
        .collect()
}

#[test]
fn the_share_of_errors_is_what_the_alert_counts() {
    let filter = |query: &str| {
        let filter = query.split_once("error_type=~\"").expect("a list of errors").1;
        filter.split_once('"').unwrap().0.to_owned()
    };
    let (_, panel, _) = queries(&board()).into_iter().find(|(title, ..)| title == "Share of errors").unwrap();
    let (_, alert) = rules().into_iter().find(|(name, _)| name == "McpproxyErrors").unwrap();
    assert_eq!(filter(&panel), filter(&alert));
    let known =
        |word: &str| Code::parse(word).is_some() || word.parse().is_ok_and(|code| code_name(code) == word);
    assert!(filter(&panel).split('|').all(known), "{panel}");
}

/// What a query asks for that a page does not have.
fn missing(query: &str, page: &Page) -> Vec<String> {
    let asked = asked(query);
    assert!(!asked.is_empty(), "{query}");
    let mut missing = Vec::new();
    for one in asked {
        let samples: Vec<_> = page.samples.iter().filter(|sample| sample.name == one.metric).collect();
        if samples.is_empty() {
            missing.push(one.metric.clone());
            continue;
        }
        let kept = one.kept.into_iter().map(|label| (label, Vec::new()));
        for (label, values) in one.chosen.into_iter().chain(kept) {
            if OF_SCRAPING.contains(&label.as_str()) {
                continue;
            }
            let fits = |value: &String| values.is_empty() || values.contains(value);
            if !samples.iter().any(|sample| sample.labels.get(&label).is_some_and(fits)) {
                missing.push(format!("{}{{{label}={values:?}}}", one.metric));
            }
        }
    }
    missing
}

/// Types of errors in a query that no operation ever ends in.
fn invented(query: &str) -> Vec<String> {
    let chosen = asked(query).into_iter().flat_map(|one| one.chosen);
    let values = chosen.filter(|(label, _)| label == "error_type").flat_map(|(_, values)| values);
    let is_known = |value: &String| {
        let is_number = || value.parse().is_ok_and(|code| code_name(code) == value);
        Code::ALL.iter().any(|code| code.as_str() == value) || is_number()
    };
    values.filter(|value| !is_known(value)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_finds_what_it_asks_for() {
    let stage = Stage::with(&[ADMIN, ("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    let tenant = busy(&stage).await;
    // and a server that breaks
    let breaks = Upstream::modern(vec![Tool::reads("leave").says(Say::Close)]).await;
    tenant.add("breaks", &breaks).await;
    Mcp::modern(&tenant.agent().await).run("read", "breaks:leave", &json!({})).await.refused("upstream_lost");
    let page = stage
        .gateway
        .scrape_until("upkeep, leases and the log", |page| {
            let is_there = |name: &str| page.samples.iter().any(|sample| sample.name == name);
            is_there("mcpproxy_partitions_ahead")
                && page.sum("mcp_server_operation_duration_seconds_count", &[("error_type", "upstream_lost")])
                    == 1.0
                && is_there("mcpproxy_lease_held")
                && is_there("mcpproxy_consent_pending_requests")
                && page.sum("mcpproxy_activity_commit_duration_seconds_count", &[("lane", "ending")]) > 0.0
        })
        .await;
    let board = board();
    let queries = queries(&board);
    assert!(queries.len() > 50, "{}", queries.len());
    for (title, query, legend) in &queries {
        assert_eq!(missing(query, &page), Vec::<String>::new(), "{title}: {query}\n{}", page.text);
        let kept: Vec<String> = asked(query).into_iter().flat_map(|one| one.kept).collect();
        for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
            assert!(kept.contains(&label.to_owned()), "{title}: {legend}");
        }
    }
    for (name, query) in rules() {
        assert_eq!(missing(&query, &page), Vec::<String>::new(), "{name}: {query}");
        assert_eq!(invented(&query), Vec::<String>::new(), "{name}: {query}");
    }
    assert_eq!(invented(r#"a{error_type=~"timeout|upstream_timeout|-32603|-1"}"#), ["timeout", "-1"]);
    // what is not there is noticed
    assert_eq!(missing("sum(mcpproxy_shedded_total)", &page), ["mcpproxy_shedded_total"]);
    assert_eq!(missing(r#"mcpproxy_shed_total{why="x"}"#, &page), [r#"mcpproxy_shed_total{why=["x"]}"#]);
    assert_eq!(missing(r#"mcpproxy_shed_total{reason="x"}"#, &page).len(), 1);

    // every variable of Grafana's lists has something to list
    for variable in board["templating"]["list"].as_array().unwrap() {
        if let Some(definition) = variable["definition"].as_str() {
            assert!(definition.starts_with("label_values(mcpproxy_build_info"), "{definition}");
        }
    }
    let said = fs::read_to_string(shipped("docs/telemetry.md")).unwrap();
    for family in page.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = family.split(' ').next().unwrap();
        assert!(said.contains(&format!("`{name}`")), "{name} is not in docs/telemetry.md");
    }
    let cells = said.lines().filter_map(|line| line.strip_prefix("| `mcp")?.split('|').next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2)).map(|rest| rest.trim_start_matches("mcp"));
    let told: Vec<&str> =
        names.filter(|rest| rest.starts_with("proxy_") || rest.ends_with("_seconds")).collect();
    assert!(told.len() > 40, "{told:?}");
    for rest in told {
        assert!(page.text.contains(&format!("# TYPE mcp{rest} ")), "mcp{rest} is on no page");
    }
}

#[test]
fn queries_and_rules_are_promql() {
    let rules = queries(&board()).into_iter().enumerate().map(|(number, (_, query, _))| {
        let query = query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*");
        assert!(!query.contains('$'), "{query}");
        json!({"record": format!("query:{number}"), "expr": query})
    });
    // JSON is YAML
    let file = json!({"groups": [{"name": "board", "rules": rules.collect::<Vec<_>>()}]});
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("board.yaml"), file.to_string()).unwrap();
    fs::copy(shipped("helm/mcpproxy/alerts.yaml"), at("alerts.yaml")).unwrap();
    fs::copy(shipped("tests/it/metrics/alerts_test.yaml"), at("test.yaml")).unwrap();
    for arguments in [
        ["check", "rules", &at("board.yaml")],
        ["check", "rules", &at("alerts.yaml")],
        ["test", "rules", &at("test.yaml")],
    ] {
        let (is_good, said) = promtool(&arguments, "");
        assert!(is_good, "{arguments:?}: {said}");
    }
    let tested = fs::read_to_string(at("test.yaml")).unwrap();
    for (name, _) in self::rules() {
        assert!(tested.contains(&format!("\"{name}\"")), "{name} has no test");
    }
}

#[test]
fn the_board_is_whole() {
    let board = board();
    assert!(board["schemaVersion"].as_i64().unwrap() >= 39 && board["uid"] == "mcpproxy");
    let variables: Vec<&str> = board["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    let (mut ids, mut traces) = (Vec::new(), 0);
    for panel in board["panels"].as_array().unwrap() {
        ids.push(panel["id"].as_i64().unwrap());
        if panel["type"] == "row" {
            continue;
        }
        let title = panel["title"].as_str().unwrap();
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        for source in targets.iter().chain([panel]).map(|of| &of["datasource"]) {
            let uid = source["uid"].as_str().unwrap();
            let variable = uid.strip_prefix("${").and_then(|uid| uid.strip_suffix('}')).unwrap();
            assert!(variables.contains(&variable), "{title}: {uid}");
        }
        for target in targets.iter().filter(|target| target["queryType"] == "search") {
            assert_eq!(target["service"], "$service", "{title}");
            traces += 1;
        }
    }
    assert!(variables.contains(&"service") && traces == 2);
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "two panels with one id");
}
