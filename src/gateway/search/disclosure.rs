//! Disclosure of tools that the authors of web pages describe (R5, progressive disclosure).

use crate::domain::web_page::settings::Disclosure;
use crate::gateway::catalog::ServerEntry;

/// Returns whether a search may find the tools of a server. Those that are disclosed on request are found if the query names
/// the host of one of its pages, or if it asks for tools of sites.
pub(super) fn is_disclosed(server: &ServerEntry, query: &str, includes_sites: bool) -> bool {
    let Some(pages) = server.target.upstream.pages() else { return true };
    match pages.settings.disclosure {
        Disclosure::Always | Disclosure::Summarize => true,
        Disclosure::OnRequest => includes_sites || pages.hosts().any(|host| names(query, &host)),
        Disclosure::Ignore => false,
    }
}

/// Returns whether a query names a host: as a whole, in any case, and not as a part of another one.
fn names(query: &str, host: &str) -> bool {
    let query = query.to_lowercase();
    query.match_indices(host).any(|(at, _)| {
        let before = query.get(..at).and_then(|text| text.chars().next_back());
        let mut after = query.get(at + host.len()..).unwrap_or_default().chars();
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
        let is_longer = match after.next() {
            // a full stop ends a sentence, unless a label follows
            Some('.') => is_part(after.next()),
            next => is_part(next),
        };
        !is_part(before) && before != Some('.') && !is_longer
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_as_a_whole() {
        for (query, is_named) in [
            ("search shop.example for shoes", true),
            ("SHOP.example", true),
            ("https://shop.example/search", true),
            ("look at shop.example.", true),
            ("shop.example:8443", true),
            ("shop", false),
            ("myshop.example", false),
            ("www.shop.example", false),
            ("shop.example.org", false),
            ("shop.examples", false),
            ("", false),
        ] {
            assert_eq!(names(query, "shop.example"), is_named, "{query}");
        }
    }
}
