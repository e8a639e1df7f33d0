//! A state opens for the request that it was given for, and for no other.

use std::time::Duration;

use serde_json::json;
use sqlx::Connection;

use super::{ON, Way, asking, asks_twice, assert_invalid, client, open, state_of};
use crate::support::{Gateway, HELD_RECORDS, Stage, Tool, settle};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn nobody_and_nothing_else_opens_it() {
    let stage = Stage::with(&[ON]).await;
    let (tenant, other_tenant) = (open(&stage, "acme").await, open(&stage, "other").await);
    let upstream = asking().await;
    for (tenant, name) in [(&tenant, "up"), (&tenant, "twin"), (&other_tenant, "up")] {
        tenant.add(name, &upstream).await;
    }
    let (agent, other_key) = (tenant.agent().await, tenant.agent().await);
    let (stranger, platform) = (other_tenant.agent().await, tenant.platform.clone());
    for way in [Way::DIRECT, Way::SEARCH] {
        let state = way.begin(client(&agent)).await;
        let calls = upstream.counts().calls;
        for (who, what) in [(&other_key, "key"), (&stranger, "tenant"), (&platform, "platform")] {
            assert_invalid(&way.again(client(who), &state).await, &format!("another {what}"));
        }
        let other_endpoint = if way.variant.is_none() { Way::SEARCH } else { Way::DIRECT };
        for other in [
            other_endpoint,
            Way { tool: "up:other", ..way },
            Way { tool: "twin:reader", ..way },
            Way { arguments: r#"{"a":1,"b":[1]}"#, ..way },
            Way { arguments: r#"{"a":1}"#, ..way },
            Way { arguments: "{}", ..way },
            Way { variant: Some("write"), ..way },
            Way { variant: Some("destructive"), ..way },
        ] {
            assert_invalid(&other.again(client(&agent), &state).await, &format!("{other:?}"));
        }
        let mut changed: Vec<String> = [0, 1, 20, 60, state.len() - 1]
            .map(|at| {
                let mut bytes = state.clone().into_bytes();
                bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                String::from_utf8(bytes).unwrap()
            })
            .into();
        let cut = [state.get(1..), state.get(..state.len() - 1)].map(|part| part.unwrap().to_owned());
        changed.extend(cut.into_iter().chain([format!("{state}A")]));
        changed.extend([format!("{state}="), String::new(), "U-2".to_owned(), "A".repeat(200_000)]);
        for text in &changed {
            assert_invalid(&way.again(client(&agent), text).await, text.get(..99).unwrap_or(text));
        }
        for raw in ["7", "{}", "true"] {
            assert_invalid(&way.go(client(&agent), &format!(r#","requestState":{raw}"#)).await, raw);
        }
        assert_eq!(upstream.counts().calls, calls, "none of them was sent");
        // in any spelling it is the same request, and one may go back to a round that is over
        let spelt = Way { arguments: r#" { "b":[ 1.0 ],"\u0061" : 1 } "#, ..way };
        for same in [way, spelt, way] {
            state_of(&same.again(client(&agent), &state).await);
        }
    }
    for record in tenant.records(&format!("key={}&status=blocked", agent.id), 46).await {
        assert_eq!(record["error_code"], "invalid_request_state", "{record}");
        assert_eq!(
            (&record["tool_variant"].is_null(), &record["parent_id"]),
            (&false, &json!(null)),
            "{record}"
        );
        assert_eq!(record["response_bytes"], json!(null), "{record}");
    }
}

#[tokio::test]
async fn what_may_destroy_is_recorded_before_it_is_refused() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let upstream = asking().await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let way = Way { tool: "up:wiper", ..Way::DIRECT };
    way.begin(client(&agent)).await;
    assert_invalid(&way.again(client(&agent), "AAAA").await, "nonsense");
    let path = format!("/api/v1/activity?key={}&status=blocked", agent.id);
    assert_eq!(tenant.platform.items(&path).await.len(), 1, "committed before the answer");
}

#[tokio::test]
async fn keys_may_be_exchanged_in_the_middle() {
    const OLD: &str = "an-old-key-for-sessions-and-for-rounds";
    const NEW: &str = "the-new-key-for-sessions-and-for-rounds";
    let key = |value: &'static str| ("MCPPROXY__SESSIONS__KEY", value);
    let both = format!("{NEW},{OLD}");
    let stage = Stage::with(&[ON, key(OLD)]).await;
    let exchanging = Gateway::start(&stage.database, &[ON, ("MCPPROXY__SESSIONS__KEY", &both)]).await;
    let exchanged = Gateway::start(&stage.database, &[ON, key(NEW)]).await;
    let tenant = open(&stage, "acme").await;
    let upstream = asking().await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let state = Way::DIRECT.begin(client(&agent)).await;
    let next = state_of(&Way::DIRECT.again(client(&exchanging.ask_as(&agent)), &state).await);
    assert_invalid(
        &Way::DIRECT.again(client(&exchanged.ask_as(&agent)), &state).await,
        "of a key that is gone",
    );
    assert_invalid(&Way::DIRECT.again(client(&agent), &next).await, "of a key that is not known yet");
    Way::DIRECT.again(client(&exchanged.ask_as(&agent)), &next).await.ok();
}

#[tokio::test]
async fn each_round_is_checked_anew() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let upstream = asking().await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let here = &tenant.platform;
    let change = |title: &str| {
        let annotations = format!(r#"{{"readOnlyHint":true,"title":"{title}"}}"#);
        upstream.set_tools(vec![asks_twice(Tool::annotated("reader", &annotations))]);
    };
    let again = async |state: &str| Way::SEARCH.again(client(&agent), state).await;
    let state = Way::SEARCH.begin(client(&agent)).await;
    let calls = upstream.counts().calls;

    let own = format!("/api/v1/keys/{}/settings", agent.id);
    here.patch(&own, &json!({"allowed_tools": ["none:*"]})).await.expect(200);
    again(&state).await.refused("not_found");
    here.patch(&own, &json!({"allowed_tools": null})).await.expect(200);
    here.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
    again(&state).await.refused("server_quarantined");
    here.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    change("Two");
    here.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    again(&state).await.refused("tool_changed");
    // taken at once, it is another definition all the same
    here.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.expect(200);
    here.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_invalid(&again(&state).await, "another definition");
    assert_eq!(upstream.counts().calls, calls);
    let state = Way::SEARCH.begin(client(&agent)).await;
    state_of(&again(&state).await);

    // the same name, the same tools, the same place, and yet another server
    here.delete("/api/v1/servers/up").await.expect(204);
    tenant.add("up", &upstream).await;
    assert_invalid(&again(&state).await, "another server");
    // the same tools at another place
    let state = Way::SEARCH.begin(client(&agent)).await;
    let elsewhere = asking().await;
    elsewhere
        .set_tools(vec![asks_twice(Tool::annotated("reader", r#"{"readOnlyHint":true,"title":"Two"}"#))]);
    here.patch("/api/v1/servers/up", &json!({"url": elsewhere.url})).await.expect(200);
    here.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    assert_invalid(&again(&state).await, "another origin");
    assert_eq!(elsewhere.counts().calls, 0);
    here.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
}

#[tokio::test]
async fn a_round_whose_server_moves_while_it_waits_for_its_record_is_not_sent() {
    let stage = Stage::with(&[ON]).await;
    // a replica of its own: the administrator's act does not queue behind the call
    let other = Gateway::start(&stage.database, &[ON]).await;
    let tenant = open(&stage, "acme").await;
    let (upstream, elsewhere) = (asking().await, asking().await);
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    let there = other.ask_as(&tenant.agent().await);
    let wiper = Way { tool: "up:wiper", ..Way::DIRECT };
    let state = wiper.begin(client(&there)).await;
    let held = stage.database.hold_records("wiper").await;
    let again = client(&there);
    let round = tokio::spawn(async move { wiper.again(again, &state).await });
    settle(1, SOON, || stage.database.count(HELD_RECORDS)).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"url": elsewhere.url})).await.expect(200);
    tenant.platform.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    // calls that wait for no record go to the new place
    settle(true, SOON, async || {
        Way::DIRECT.go(client(&there), "").await;
        elsewhere.counts().calls > 0
    })
    .await;
    assert!(!round.is_finished());
    held.close().await.unwrap();
    assert_invalid(&round.await.unwrap(), "another origin");
    assert!(elsewhere.calls().iter().all(|call| call.tool == "reader"));
}
