//! Ends of turns on the pages of permission requests.

use std::time::Duration;

use serde_json::json;

use super::markup::attributes;
use super::permissions::{asked, asking, decision_of, path_of};
use crate::support::upstream::Say;
use crate::support::{Api, Mcp, Stage, Tool, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_end_of_a_turn_says_until_when_and_how_many_requests_ended() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(asked(&agent, &json!({"n": n})).await);
    }
    // what another key asks is no part of the turn
    let elsewhere = asked(&tenant.agent().await, &json!({})).await;
    let end = async |id: &str| {
        let done = visitor.post(&decision_of(id), &[("decision", "cancel_turn")]).await;
        visitor.get(done.header("location")).await.text
    };
    for (id, says) in
        [(&ids[1], "Ends this request and 2 others now."), (&elsewhere, "Ends this request alone now.")]
    {
        let before = visitor.get(&path_of(id)).await.text;
        assert!(before.contains(says), "{says}: {before}");
        assert!(before.contains("The log has none under way now, reads not counted."), "{before}");
    }
    let page = end(&ids[1]).await;
    for says in ["2 other requests of the turn ended with it", "refused until 2"] {
        assert!(page.contains(says), "{says}: {page}");
    }
    assert!(page.contains(&path_of(&elsewhere)), "{page}");
    let list = visitor.get("/console/permissions?state=cancelled").await.text;
    assert_eq!(list.matches("Ended with its turn: ").count(), 2, "{list}");
    assert_eq!(list.matches("Denied, and the agent&#39;s turn stopped: ").count(), 1, "{list}");
    let ended = visitor.get(&path_of(&ids[0])).await.text;
    assert!(ended.contains("its turn was ended: calls of it that ask are refused until 2"), "{ended}");
    assert!(end(&elsewhere).await.contains("No other request of the turn was open"));
}

#[tokio::test]
async fn the_end_of_a_turn_leaves_who_had_allowed_a_call() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let (first, second) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let approver = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &approver).await;
    visitor.post(&decision_of(&first), &[("decision", "allow_once")]).await.expect(303);
    let admin = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let comment = ("comment", "too much at once");
    let ended = admin.post(&decision_of(&second), &[("decision", "cancel_turn"), comment]).await;
    assert!(
        admin.get(ended.header("location")).await.text.contains("1 other request of the turn ended with it")
    );
    let page = visitor.get(&path_of(&first)).await.text;
    assert!(attributes(&page, "href").contains(&path_of(&second)), "{page}");
    assert!(page.contains("with the comment: too much at once"), "{page}");
    assert!(!visitor.get(&path_of(&second)).await.text.contains("Its turn was ended with"));
    assert!(
        page.contains("Allowed once: eva, over console (ended with its turn before it ran), <time"),
        "{page}"
    );
    assert!(page.contains("its turn was ended: calls of it that ask are refused until "), "{page}");
    let mine = visitor.get("/console/permissions?state=decided_by_me").await.text;
    assert!(mine.contains(&path_of(&first)), "{mine}");
}

#[tokio::test]
async fn the_end_of_a_turn_is_told_with_its_time_and_in_the_past() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let (first, second) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let (ann, eva) = (
        tenant.key(&json!({"role": "approver", "owner": "ann"})).await,
        tenant.key(&json!({"role": "approver", "owner": "eva"})).await,
    );
    let ann = Visitor::with_key(&stage.gateway, &ann).await;
    ann.post(&decision_of(&first), &[("decision", "allow_once")]).await.expect(303);
    let eva = Visitor::with_key(&stage.gateway, &eva).await;
    eva.post(&decision_of(&second), &[("decision", "cancel_turn")]).await.expect(303);
    let page = ann.get(&path_of(&first)).await.text;
    assert!(
        page.contains("Allowed once: ann, over console (ended with its turn before it ran), <time"),
        "{page}"
    );
    assert!(page.contains("another request</a> by eva, <time"), "{page}");
    assert!(page.contains("calls of it that ask are refused until "), "{page}");
    sqlx::query("update consent_requests set ended_at = ended_at - interval '1 hour', created_at = created_at - interval '2 hours'")
        .execute(&mut stage.database.connect().await)
        .await
        .unwrap();
    let page = ann.get(&path_of(&first)).await.text;
    assert!(
        page.contains("its turn was ended; the same call asks again, unless a remembered decision covers it"),
        "{page}"
    );
}

#[tokio::test]
async fn the_page_of_a_call_that_the_end_of_its_turn_cut_off_says_who_ended_it() {
    let stage = Stage::start().await;
    let tools = vec![
        Tool::writes("writer"),
        Tool::writes("slow").says(Say::Hang),
        Tool::reads("look").says(Say::Hang),
    ];
    let (tenant, upstream) = asking(&stage, json!([]), tools).await;
    let (agent, elsewhere) = (tenant.agent().await, tenant.agent().await);
    let approver = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &approver).await;
    let run =
        async |key: &Api, variant: &str, tool: &str| Mcp::bare(key).run(variant, tool, &json!({})).await;
    let allowed = async |key: &Api, variant: &str, tool: &str| {
        let refused = run(key, variant, tool).await.refused("consent_pending");
        let id = refused["consent_id"].as_str().unwrap_or_else(|| panic!("{refused}")).to_owned();
        visitor.post(&decision_of(&id), &[("decision", "allow_once")]).await.expect(303);
        id
    };
    let id = allowed(&agent, "write", "zoo:slow").await;
    allowed(&agent, "read", "zoo:look").await;
    allowed(&elsewhere, "write", "zoo:slow").await;
    let other = asked(&agent, &json!({})).await;
    let end = async {
        settle(3, SOON, async || upstream.counts().calls).await;
        // neither reads nor calls of another key are counted
        let before = visitor.get(&path_of(&other)).await.text;
        assert!(before.contains("The log has 1 under way now, reads not counted."), "{before}");
        let comment = ("comment", "ask Ben first");
        let ended = visitor.post(&decision_of(&other), &[("decision", "cancel_turn"), comment]).await;
        ended.expect(303);
        let told = async || visitor.get(ended.header("location")).await.text;
        settle(true, SOON, async || {
            told().await.contains("The log has no call of it under way, reads not counted")
        })
        .await;
    };
    let of_turn = async {
        let (cut_off, _, ()) =
            tokio::join!(run(&agent, "write", "zoo:slow"), run(&agent, "read", "zoo:look"), end);
        cut_off
    };
    let cut_off = tokio::select! {
        cut_off = of_turn => cut_off,
        _ = run(&elsewhere, "write", "zoo:slow") => panic!("the call of another key ended"),
    };
    let refused = cut_off.refused("turn_cancelled");
    let says = refused["message"].as_str().unwrap();
    assert!(
        says.starts_with("The call was sent and may have run, but the user stopped this turn"),
        "{refused}"
    );
    assert!(refused.to_string().contains("ask Ben first"), "{refused}");
    let page = async || visitor.get(&path_of(&id)).await.text;
    settle(true, SOON, async || page().await.contains(">unknown")).await;
    let page = page().await;
    assert!(attributes(&page, "href").contains(&path_of(&other)), "{page}");
    assert!(page.contains("another request</a> by eva, <time"), "{page}");
}
