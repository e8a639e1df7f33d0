//! Changes of prompts and resources, each told to those who asked for it.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{OWN, Scene, modern, session};
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
