//! Changes announced on the stream of a session, kept until they are taken.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use rmcp::model::ServerNotification;
use tokio::sync::Notify;

use crate::upstream::protocol::offers::Announced;

/// Kinds of changes that a server may announce, in the order in which they are taken.
const ALL: [Announced; 3] = [Announced::Tools, Announced::Prompts, Announced::Resources];

/// Announced changes that were not taken yet, at most one of each kind: a change announced twice is listed once.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Announcement {
    /// Set of kinds, one bit for each.
    bits: AtomicU8,
    told: Notify,
    resources: Mutex<UpdatedResources>,
}

/// URIs of resources that are watched, and those of them that were updated and not taken yet.
#[derive(Debug, Default)]
struct UpdatedResources {
    watched: HashSet<String>,
    updated: BTreeSet<String>,
}

impl Announcement {
    /// Records an announced change.
    pub(super) fn note(&self, what: Announced) {
        self.bits.fetch_or(bit(what), Ordering::SeqCst);
        self.told.notify_one();
    }

    /// Waits for an announced change, and takes it.
    pub(super) async fn next(&self) -> Announced {
        loop {
            if let Some(what) = self.take() {
                return what;
            }
            // an announcement in between has left its permit
            self.told.notified().await;
        }
    }

    /// Watches these resources from now on. Updates of others are dropped.
    pub(super) fn watch(&self, uris: &[String]) {
        let mut resources = self.resources.lock();
        resources.watched = uris.iter().cloned().collect();
        let UpdatedResources { watched, updated } = &mut *resources;
        updated.retain(|uri| watched.contains(uri));
    }

    /// Records an update of the watched resources that a URI is, or is a part of.
    pub(super) fn note_update(&self, uri: &str) {
        let mut resources = self.resources.lock();
        let UpdatedResources { watched, updated } = &mut *resources;
        updated.extend(covering(watched, uri).cloned());
        drop(resources);
        self.told.notify_one();
    }

    /// Waits for an update of a watched resource, and takes it.
    pub(super) async fn next_update(&self) -> String {
        loop {
            let taken = self.resources.lock().updated.pop_first();
            if let Some(uri) = taken {
                return uri;
            }
            // an update in between has left its permit
            self.told.notified().await;
        }
    }

    fn take(&self) -> Option<Announced> {
        ALL.into_iter().find(|what| self.bits.fetch_and(!bit(*what), Ordering::SeqCst) & bit(*what) != 0)
    }
}

fn bit(what: Announced) -> u8 {
    match what {
        Announced::Tools => 1,
        Announced::Prompts => 2,
        Announced::Resources => 4,
    }
}

/// Returns the watched URIs that an update concerns: servers may name a part of a resource that they were asked to watch (MCP
/// 2025-11-25, resources).
pub(super) fn covering<'a>(watched: &'a HashSet<String>, uri: &str) -> impl Iterator<Item = &'a String> {
    let exact = watched.get(uri);
    let is_part = |of: &&'a String| {
        let rest = uri.strip_prefix(of.as_str());
        rest.is_some_and(|rest| of.ends_with('/') || rest.starts_with(['/', '?', '#']))
    };
    let wider: Vec<&String> = match exact {
        Some(_) => Vec::new(),
        None => watched.iter().filter(is_part).collect(),
    };
    exact.into_iter().chain(wider)
}

/// Returns the kind whose change a notification announces; `None` if it announces none.
pub(super) fn announced(notification: &ServerNotification) -> Option<Announced> {
    match notification {
        ServerNotification::ToolListChangedNotification(_) => Some(Announced::Tools),
        ServerNotification::PromptListChangedNotification(_) => Some(Announced::Prompts),
        ServerNotification::ResourceListChangedNotification(_) => Some(Announced::Resources),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_kind_is_taken_once() {
        let heard = Announcement::default();
        assert_eq!(heard.next().now_or_never(), None);
        for what in [Announced::Resources, Announced::Tools, Announced::Resources] {
            heard.note(what);
        }
        assert_eq!(heard.next().now_or_never(), Some(Announced::Tools));
        assert_eq!(heard.next().now_or_never(), Some(Announced::Resources));
        assert_eq!(heard.next().now_or_never(), None);
        heard.note(Announced::Prompts);
        assert_eq!(heard.next().now_or_never(), Some(Announced::Prompts));
    }

    #[test]
    fn updates_are_of_what_is_watched() {
        let heard = Announcement::default();
        let watch = |uris: &[&str]| {
            heard.watch(&uris.iter().map(|uri| (*uri).to_owned()).collect::<Vec<_>>());
        };
        heard.note_update("a://1");
        assert_eq!(heard.next_update().now_or_never(), None, "not watched");
        watch(&["a://1", "a://dir", "b://"]);
        for uri in ["a://1", "a://1", "a://dir/x", "a://directory", "a://dir?x", "b:", "c://"] {
            heard.note_update(uri);
        }
        assert_eq!(heard.next_update().now_or_never().as_deref(), Some("a://1"), "told twice, taken once");
        assert_eq!(heard.next_update().now_or_never().as_deref(), Some("a://dir"));
        assert_eq!(heard.next_update().now_or_never(), None);
        heard.note_update("b://x/y");
        watch(&["a://1"]);
        assert_eq!(heard.next_update().now_or_never(), None, "not watched any more");
    }
}
