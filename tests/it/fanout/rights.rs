//! A stream's rights are those that its key has now.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use super::{ACT, Scene, ears, modern, names};
use crate::support::{eventually, settle};

#[tokio::test]
async fn a_key_that_is_given_other_tools_is_told_and_no_other() {
    let mut scene = Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    scene.add("lab", &["measure"]).await;
    let (agent, other) = (scene.tenant.agent().await, scene.tenant.agent().await);
    let told = ears(&scene.there(&agent)).await;
    let spared = ears(&scene.there(&other)).await;
    let platform = &scene.tenant.platform;
    let settings = format!("/api/v1/keys/{}/settings", agent.id);
    platform.patch(&settings, &json!({"allowed_tools": ["zoo:*"]})).await.expect(200);
    for ear in &told {
        ear.hears(1, ACT).await;
    }
    assert_eq!(names(&modern(&scene.there(&agent))).await, ["read_cache", "zoo:reader"]);
    // what it no longer sees no longer concerns it
    scene.act("lab", "disable").await;
    for ear in &spared {
        ear.hears(1, ACT).await;
    }
    // nothing of the list depends on this
    platform.patch(&settings, &json!({"rate_limit": 50000})).await.expect(200);
    // the other spelling is another list
    platform.patch(&settings, &json!({"tool_names": "safe"})).await.expect(200);
    for ear in &told {
        ear.hears(2, ACT).await;
    }
    for ear in &spared {
        ear.hears(1, ACT).await;
    }
}

#[tokio::test]
async fn of_other_management_tools_and_of_what_a_person_says_of_a_tool() {
    let mut scene = Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    let (operator, agent) = (scene.tenant.operator().await, scene.tenant.agent().await);
    let manages = ears(&scene.there(&operator)).await;
    let spared = ears(&scene.there(&agent)).await;
    let platform = &scene.tenant.platform;
    for key in [&operator, &agent] {
        let settings = format!("/api/v1/keys/{}/settings", key.id);
        platform.patch(&settings, &json!({"max_operation": "write"})).await.expect(200);
    }
    for ear in &manages {
        ear.hears(1, ACT).await;
    }
    // all that an agent sees only reads: its list is what it was, until this
    let tools = "/api/v1/servers/zoo/tools";
    let pin = platform.items(tools).await[0]["pin"].clone();
    let says = json!({"pin": pin, "annotations": {"openWorldHint": true}});
    platform.ask(Method::PUT, &format!("{tools}/reader/override"), Some(&says)).await.expect(200);
    for (ears, count) in [(&manages, 2), (&spared, 1)] {
        for ear in ears {
            ear.hears(count, ACT).await;
        }
    }
    let seen = modern(&scene.there(&agent)).tools().await;
    let reader = seen.iter().find(|tool| tool["name"] == "zoo:reader").unwrap();
    assert_eq!(reader["annotations"]["openWorldHint"], true, "{reader}");
    // it was told once
    scene.act("zoo", "disable").await;
    for (ears, count) in [(&manages, 3), (&spared, 2)] {
        for ear in ears {
            ear.hears(count, ACT).await;
        }
    }
}

/// A ceiling bounds nothing in an empty list: it is the list that it was. Told is whoever has tools that it bounds.
#[tokio::test]
async fn a_ceiling_over_an_empty_list_is_not_told() {
    let mut scene = Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    for ceiling in ["read", "write"] {
        scene.act("zoo", "disable").await;
        // keys of their own: one that was served a list of before is told so for a while
        let (agent, operator) = (scene.tenant.agent().await, scene.tenant.operator().await);
        let (mut spared, mut told) = (Vec::new(), Vec::new());
        for api in [&agent, &scene.there(&agent)] {
            assert_eq!(names(&modern(api)).await, ["read_cache"]);
            spared.extend(ears(api).await);
        }
        for api in [&operator, &scene.there(&operator)] {
            modern(api).tools().await;
            told.extend(ears(api).await);
        }
        for key in [&agent, &operator] {
            let settings = format!("/api/v1/keys/{}/settings", key.id);
            scene.tenant.platform.patch(&settings, &json!({"max_operation": ceiling})).await.expect(200);
        }
        for ear in &told {
            eventually("word of the ceiling", ACT, || async { ear.notices().first().copied() }).await;
        }
        let before = Instant::now();
        scene.act("zoo", "enable").await;
        for ear in &spared {
            let first =
                eventually("word of the tools", ACT, || async { ear.notices().first().copied() }).await;
            assert!(first >= before, "told {:?} before anything changed", before - first);
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_what_it_rests_on() {
    let scene = Scene::set().await;
    let platform = &scene.tenant.platform;
    let agent = scene.tenant.agent().await;
    let streams = ears(&scene.there(&agent)).await;
    platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    for ear in &streams {
        ear.ends(ACT).await;
    }

    let soon = chrono::Utc::now() + Duration::from_secs(3);
    let short = scene.tenant.key(&json!({"role": "agent", "expires_at": soon.to_rfc3339()})).await;
    let streams = ears(&scene.there(&short)).await;
    for ear in &streams {
        ear.ends(Duration::from_secs(5)).await;
    }

    // the endpoint is switched off for whom it was open
    let agent = scene.tenant.agent().await;
    let streams = ears(&scene.there(&agent)).await;
    platform.patch("/api/v1/settings", &json!({"direct_endpoint": false})).await.expect(200);
    for ear in &streams {
        ear.ends(ACT).await;
    }
    let closed = scene.there(&agent);
    settle(404, ACT, || async { modern(&closed).request("tools/list", "{}").await.status }).await;
}
