//! Changes of prompts and resources, each told to those who asked for it.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ACT, OWN, Scene, modern, session};
use crate::support::upstream::{Era, Offers};
use crate::support::{Ear, Tool, Upstream, settle};

const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

/// What the server offers by now.
fn offers(prompt: &str, uri: &str, template: &str) -> Offers {
    let Offers { prompts, .. } = Offers::prompts(&[prompt]);
    let Offers { templates, .. } = Offers::templates(&[template]);
    Offers { prompts, templates, ..Offers::resources(&[uri]) }
}

#[tokio::test]
async fn of_each_kind_to_whoever_asked_for_it() {
    for era in [Era::Handshake, Era::Modern] {
        let scene = Scene::set().await;
        let upstream = Upstream::announcing(era, vec![Tool::reads("alpha")]).await;
        upstream.set_offers(offers("p", "x://1", "x://a/{n}"));
        scene.tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
        settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
        settle(true, OWN, || async { upstream.asked_of("resources/templates/list") >= 2 }).await;
        let there = scene.there(&scene.tenant.agent().await);
        let mut one_of = Vec::new();
        for list in LISTS {
            one_of.push(Ear::listen(&modern(&there), &json!({ format!("{list}ListChanged"): true })).await);
        }
        let all = Ear::of(&session(&there).await, None).await;

        let mut told = [0; LISTS.len()];
        let changes = [
            (1, offers("q", "x://1", "x://a/{n}")),
            (2, offers("q", "x://2", "x://a/{n}")),
            (2, offers("q", "x://2", "x://b/{n}")),
        ];
        for (kind, changed) in changes {
            let began = Instant::now();
            upstream.set_offers(changed);
            upstream.announce_of(LISTS[kind]);
            told[kind] += 1;
            for ear in [&one_of[kind], &all] {
                let heard = ear.hears_of(LISTS[kind], told[kind], OWN).await;
                assert!(heard - began < OWN, "{era:?}: {:?}", heard - began);
            }
        }
        // what nobody was to hear would have come before this
        upstream.set_tools(vec![Tool::reads("beta")]);
        upstream.announce(1);
        told[0] += 1;
        for ear in [&one_of[0], &all] {
            ear.hears_of(LISTS[0], 1, OWN).await;
        }
        let heard = |ear: &Ear| LISTS.map(|list| ear.notices_of(list).len());
        assert_eq!(heard(&all), told, "{era:?}");
        for (kind, ear) in one_of.iter().enumerate() {
            let mut own = [0; LISTS.len()];
            own[kind] = told[kind];
            assert_eq!(heard(ear), own, "{era:?}");
        }
    }
}

#[tokio::test]
async fn decisions_are_told_to_whoever_sees_another_list_by_them_and_to_nobody_else() {
    let scene = Scene::set().await;
    let upstream = Upstream::handshake(vec![Tool::reads("alpha")]).await;
    let offers = |version: &str| {
        let prompt = |name: &str| json!({"name": name, "description": version}).to_string();
        Offers { prompts: Some(vec![prompt("p"), prompt("q")]), ..Offers::resources(&["x://a"]) }
    };
    upstream.set_offers(offers("first"));
    scene.tenant.add("up", &upstream).await;
    let all = scene.there(&scene.tenant.agent().await);
    let narrow = scene.there(&scene.tenant.agent_with(json!({"allowed_tools": ["up:q"]})).await);
    let listens = async |api| Ear::of(&session(api).await, None).await;
    let (all, narrow) = (listens(&all).await, listens(&narrow).await);
    let act = async |path: &str, body: serde_json::Value| {
        scene.tenant.platform.post(&format!("/api/v1/servers/up/{path}"), &body).await.expect(200);
    };
    act("prompts/p/block", json!({})).await;
    all.hears_of("prompts", 1, ACT).await;
    // a change of both hides what was seen of them
    upstream.set_offers(offers("second"));
    act("refresh", json!({})).await;
    all.hears_of("prompts", 2, ACT).await;
    narrow.hears_of("prompts", 1, ACT).await;
    let prompts = scene.tenant.platform.items("/api/v1/servers/up/prompts").await;
    for (prompt, told) in [("p", [3, 1]), ("q", [4, 2])] {
        let shown = prompts.iter().find(|shown| shown["name"] == prompt).unwrap();
        act(&format!("prompts/{prompt}/approve"), json!({"pin": shown["pin"]})).await;
        for (ear, told) in [&all, &narrow].into_iter().zip(told) {
            ear.hears_of("prompts", told, ACT).await;
        }
    }
    act("resources/block", json!({"uri": "x://a"})).await;
    all.hears_of("resources", 1, ACT).await;
    let heard = |ear: &Ear| LISTS.map(|list| ear.notices_of(list).len());
    assert_eq!((heard(&all), heard(&narrow)), ([0, 4, 1], [0, 2, 0]));
}
