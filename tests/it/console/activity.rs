//! Records of attempts, and one of them.

use std::time::Duration;

use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped};
use crate::support::upstream::Say;
use crate::support::{Api, Mcp, Stage, Tenant, Tool, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

/// Ids of the records that a page links to, in its order.
fn ids(page: &str) -> Vec<String> {
    let links = attributes(page, "href").into_iter();
    let ids = links.filter_map(|href| href.strip_prefix("/console/activity/").map(str::to_owned));
    ids.filter(|id| !id.starts_with("export?")).collect()
}

/// Ids of the records that REST lists.
async fn listed(api: &Api, query: &str) -> Vec<String> {
    let items = api.items(&format!("/api/v1/activity?{query}")).await;
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// A tenant with some calls of two agents, on two names of one server.
async fn busy(stage: &Stage) -> (Tenant, Upstream, [Api; 2], Vec<Value>) {
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    tenant.add("ark", &upstream).await;
    let ada = tenant.key(&json!({"role": "agent", "owner": "ada", "name": "ada's laptop"})).await;
    let bob = tenant.key(&json!({"role": "agent", "owner": "bob"})).await;
    let (first, second) = (Mcp::session(&ada).await, Mcp::session(&bob).await);
    first.run("read", "zoo:reader", &json!({"path": "/needle"})).await.ok();
    first.run("write", "zoo:writer", &json!({})).await.ok();
    first.run("read", "zoo:wiper", &json!({})).await.refused("server_mismatch");
    second.run("destructive", "ark:wiper", &json!({})).await.ok();
    let calls = tenant.records("type=tool_call", 4).await;
    (tenant, upstream, [ada, bob], calls)
}

#[tokio::test]
async fn every_filter_finds_what_the_api_finds() {
    let stage = Stage::start().await;
    let (tenant, _upstream, [ada, bob], calls) = busy(&stage).await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let of = |name: &str| calls.last().unwrap()[name].as_str().unwrap().to_owned();
    for query in [
        "type=tool_call".to_owned(),
        "source=rest".to_owned(),
        "server=ark&type=tool_call".to_owned(),
        "tool=wiper".to_owned(),
        "tool=zoo:wiper".to_owned(),
        "tier=destructive".to_owned(),
        "not_read=true".to_owned(),
        "status=blocked".to_owned(),
        "intent_type=read&type=tool_call".to_owned(),
        "decision=allowed".to_owned(),
        format!("key={}", ada.id),
        "key=ada's%20laptop".to_owned(),
        format!("identity_id={}", bob.id),
        "owner=bob".to_owned(),
        "client_address=127.0.0.1&type=tool_call".to_owned(),
        format!("session_id={}", of("session_id")),
        format!("request_id={}&type=tool_call", of("request_id")),
        format!("consent_id={}", ada.id),
        "contains=needle".to_owned(),
        "start_time=2001-01-01T00:00:00Z&end_time=2001-01-02T00:00:00Z".to_owned(),
        format!("type=tool_call&start_time={}", of("started_at").replace(':', "%3A")),
    ] {
        let page = visitor.get(&format!("/console/activity?{query}")).await;
        page.expect(200);
        assert_eq!(ids(&page.text), listed(&tenant.platform, &query).await, "{query}");
        assert_harmless(&page.text);
    }
    // a form sends the fields that nobody filled in as well, and times without a zone
    let sent =
        "server=&tool=wiper&status=&not_read=&limit=&contains=&start_time=2001-01-01T00%3A00&end_time=";
    let page = visitor.get(&format!("/console/activity?{sent}")).await;
    let query = "tool=wiper&start_time=2001-01-01T00:00:00Z";
    assert_eq!(ids(&page.text), listed(&tenant.platform, query).await);
    assert_eq!(ids(&page.text).len(), 2);
    for kept in ["value=\"wiper\"", "value=\"2001-01-01T00:00\"", "Remove the filters"] {
        assert!(page.text.contains(kept), "{kept}: {}", page.text);
    }
}

#[tokio::test]
async fn pages_follow_each_other_to_the_oldest_record() {
    let stage = Stage::start().await;
    let (tenant, _upstream, _, _) = busy(&stage).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    for query in ["type=tool_call", "type=tool_call&contains=path"] {
        let mut found = Vec::new();
        let mut next = Some(format!("/console/activity?{query}&limit=3"));
        while let Some(path) = next {
            let page = visitor.get(&path).await;
            page.expect(200);
            let records = ids(&page.text);
            assert!(records.len() <= 3);
            found.extend(records);
            let links = page.text.split("<a rel=\"next\"").nth(1).map(|rest| attributes(rest, "href"));
            next = links.and_then(|links| links.into_iter().next());
            assert!(next.as_ref().is_none_or(|next| next.contains(query)), "{next:?}");
        }
        assert_eq!(found, listed(&tenant.platform, query).await, "{query}");
    }
    let columns = visitor.get("/console/activity?type=tool_call&status=blocked").await.text;
    for shown in ["zoo", "wiper", "read", "blocked", "server_mismatch", "ada", "ada&#39;s laptop", " ms</td>"]
    {
        assert!(columns.contains(shown), "{shown}: {columns}");
    }
    assert!(columns.contains("<time datetime=\"20") && columns.contains(" UTC\">"), "{columns}");
}

#[tokio::test]
async fn a_filter_that_is_wrong_is_named_and_the_form_stays() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    for (query, says) in [
        ("status=odd&tool=kept", "status must be one of"),
        ("tool=kept&client_address=home", "client_address must be an IP address"),
        ("tool=kept&end_time=yesterday", "end_time must be an RFC 3339 time"),
        ("tool=kept&limit=101", "limit must be a whole number from 1 to 100"),
        ("tool=kept&cursor=!", "cursor must be a next_cursor"),
        ("tool=kept&tool=kept", "tool is given more than once"),
    ] {
        let page = visitor.get(&format!("/console/activity?{query}")).await;
        page.expect(400);
        assert!(page.text.contains(says) && page.text.contains("value=\"kept\""), "{query}: {page:?}");
    }
    let page = visitor.get("/console/activity?colour=red").await;
    page.expect(400);
    assert!(page.text.contains("unknown query parameter &#39;colour&#39;"), "{page:?}");
    for missing in ["x", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        visitor.get(&format!("/console/activity/{missing}")).await.expect(404);
    }
}

#[tokio::test]
async fn a_record_shows_what_is_known_of_it_and_no_secret() {
    let stage = Stage::start().await;
    let (tenant, _upstream, [ada, _], calls) = busy(&stage).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let refused = calls.iter().find(|call| call["status"] == "blocked").unwrap();
    let page = visitor.get(&format!("/console/activity/{}", refused["id"].as_str().unwrap())).await;
    page.expect(200);
    let message = escaped(refused["error_message"].as_str().unwrap());
    for shown in [
        "zoo:wiper",
        "refused: server_mismatch",
        message.as_str(),
        "read, inferred from the variant",
        "it-client 1.2.3",
        &ada.id,
        refused["session_id"].as_str().unwrap(),
    ] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let declared = json!({"name": "zoo:writer", "args": {"token": secret, "text": "<b>bold</b>"},
        "intent_operation_type": "write", "intent_data_sensitivity": "private", "intent_reason": "because I <must>"});
    Mcp::bare(&ada).call("call_tool_write", &declared).await.ok();
    let record = tenant.records("type=tool_call&contains=bold", 1).await.remove(0);
    let page = visitor.get(&format!("/console/activity/{}", record["id"].as_str().unwrap())).await;
    page.expect(200);
    for shown in [
        "write, declared",
        "private",
        "because I &#60;must&#62;",
        "&#60;b&#62;bold",
        "passed",
        "Result",
        "<pre",
    ] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
    assert!(!page.text.contains(secret), "{}", page.text);
    assert_harmless(&page.text);
}

#[tokio::test]
async fn agents_see_their_own_records_and_approvers_none() {
    let stage = Stage::start().await;
    let (tenant, _upstream, [ada, bob], calls) = busy(&stage).await;
    let own = Visitor::with_key(&stage.gateway, &ada).await;
    let page = own.get("/console/activity").await.text;
    assert!(page.contains("Activity of your key"), "{page}");
    let mut of_ada = listed(&ada, "").await;
    of_ada.retain(|id| ids(&page).contains(id));
    assert_eq!(of_ada, ids(&page));
    assert!(
        calls
            .iter()
            .filter(|call| call["owner"] == "ada")
            .all(|call| page.contains(call["id"].as_str().unwrap()))
    );
    let others = calls.iter().find(|call| call["owner"] == "bob").unwrap()["id"].as_str().unwrap();
    assert!(!page.contains(others), "{page}");
    own.get(&format!("/console/activity/{others}")).await.expect(404);
    assert!(ids(&own.get(&format!("/console/activity?key={}", bob.id)).await.text).is_empty());

    let approver = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    for path in ["/console/activity", "/console/activity?colour=red", &format!("/console/activity/{others}")]
    {
        let page = approver.get(path).await;
        page.expect(403);
        assert!(page.text.contains("Your role, approver, may not do this."), "{page:?}");
        assert!(!attributes(&page.text, "href").contains(&"/console/activity".to_owned()), "{page:?}");
    }
    let refused = async || {
        let items = tenant.platform.items("/api/v1/activity?source=console&status=blocked").await;
        let mut tools: Vec<String> =
            items.iter().map(|item| item["tool"].as_str().unwrap().to_owned()).collect();
        tools.sort();
        tools.dedup();
        tools
    };
    settle(vec!["activity.get".to_owned(), "activity.list".to_owned()], SOON, refused).await;
    // another tenant's record is none
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    stranger.get(&format!("/console/activity/{others}")).await.expect(404);
}

#[tokio::test]
async fn an_empty_page_says_what_to_do() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (agent, admin) = (tenant.agent().await, tenant.admin().await);
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let page = visitor.get("/console/activity?server=none").await.text;
    assert!(page.contains("No record matches."), "{page}");
    let page = visitor.get("/console/activity?status=waiting").await.text;
    let link = "<a href=\"/console/permissions\">Permissions</a>";
    assert!(page.contains(link) && page.contains("with consent_pending."), "{page}");
    // the login is a record of its own
    let own = Visitor::with_key(&stage.gateway, &agent).await;
    let page = own.get("/console/activity?type=tool_call").await.text;
    assert!(page.contains("No record matches.") && !page.contains("<tbody>"), "{page}");
    let past = "end_time=2001-01-01T00:00:00Z";
    assert!(own.get(&format!("/console/activity?{past}")).await.text.contains("widen the time range"));
}

#[tokio::test]
async fn hostile_texts_stay_texts_in_every_field() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let result = |text: &str| {
        Say::Result(json!({"content": [{"type": "text", "text": text}], "isError": true}).to_string())
    };
    let tool = |text: &&str| {
        let definition = json!({"name": text, "description": text, "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true, "title": text}});
        Tool::raw(text, &definition.to_string()).says(result(text))
    };
    let upstream = Upstream::handshake(HOSTILE.iter().map(tool).collect()).await;
    tenant.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    for text in HOSTILE {
        let agent = tenant.key(&json!({"role": "agent", "name": text, "owner": text})).await;
        let call = json!({"name": format!("up:{text}"), "args": {"x": text}, "intent_reason": text});
        Mcp::bare(&agent).call("call_tool_read", &call).await;
        let record = tenant.records(&format!("key={}&type=tool_call", agent.id), 1).await.remove(0);
        assert_eq!(record["owner"], text);
        let list = visitor.get(&format!("/console/activity?key={}", agent.id)).await.text;
        let one = visitor.get(&format!("/console/activity/{}", record["id"].as_str().unwrap())).await.text;
        for page in [&list, &one] {
            assert_harmless(page);
            assert!(page.contains(&escaped(text)), "{text}: {page}");
        }
        for member in ["arguments", "response", "tool", "owner", "key_name"] {
            if let Some(shown) = record[member].as_str() {
                assert!(one.contains(&escaped(shown)), "{member} {shown}: {one}");
            }
        }
        let own = Visitor::with_key(&stage.gateway, &agent).await;
        assert_harmless(&own.get("/console").await.text);
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for query in [format!("tool={encoded}"), format!("status={encoded}"), format!("{encoded}=x")] {
            assert_harmless(&visitor.get(&format!("/console/activity?{query}")).await.text);
        }
    }
}

#[tokio::test]
async fn what_a_page_shows_is_exported_as_the_api_exports_it() {
    let stage = Stage::start().await;
    let (tenant, _upstream, [ada, _bob], _calls) = busy(&stage).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let page = visitor.get("/console/activity?type=tool_call&server=zoo&limit=25").await.text;
    let links: Vec<String> =
        attributes(&page, "href").into_iter().filter(|href| href.contains("/export?")).collect();
    assert_eq!(
        links,
        ["csv", "jsonl"]
            .map(|format| format!("/console/activity/export?type=tool_call&server=zoo&format={format}"))
    );
    for (link, kind) in links.iter().zip(["text/csv; charset=utf-8", "application/x-ndjson"]) {
        let file = visitor.get(link).await;
        file.expect(200);
        assert_eq!(file.header("content-type"), kind);
        assert!(file.header("content-disposition").starts_with("attachment;"), "{file:?}");
        let same = tenant.platform.get(&link.replace("/console/", "/api/v1/")).await;
        assert_eq!(file.text, same.text);
        assert!(file.text.lines().count() >= 3, "{file:?}");
    }
    // times as browsers send them
    visitor.get("/console/activity/export?start_time=2026-01-31T12:00&format=csv").await.expect(200);
    for query in ["format=xml", "contains=x", "colour=red", "status=odd"] {
        visitor.get(&format!("/console/activity/export?{query}")).await.expect(400);
    }
    let searched = visitor.get("/console/activity?contains=needle").await.text;
    assert!(!searched.contains("/export?"), "{searched}");
    tenant.records("tool=activity.export&source=console&status=success", 3).await;
    // an agent exports its own records, an approver none
    let own = Visitor::with_key(&stage.gateway, &ada).await;
    let file = own.get("/console/activity/export?type=tool_call").await.text;
    assert_eq!(file.lines().count(), 3, "{file}");
    let approver = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    approver.get("/console/activity/export").await.expect(403);
    assert_eq!(Visitor::of(&stage.gateway).get("/console/activity/export").await.status, 303);
}
