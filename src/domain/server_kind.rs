//! Kinds of upstream servers.

/// Kind of an upstream server: what its address is, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// MCP over HTTP, at a URL.
    Http,
    /// Program of the deployment, over its standard input and output.
    Stdio,
    /// Forms of web pages, at their URLs.
    WebPage,
    /// Kind of a newer release, by its name. Such a server is shown, and never contacted.
    Unknown(Box<str>),
}

impl ServerKind {
    /// Names of the kinds that can be added.
    pub const NAMES: [&'static str; 3] = ["http", "stdio", "web_page"];
    /// Names of the kinds that management tools can add.
    pub const NAMES_OVER_MCP: [&'static str; 2] = ["http", "stdio"];

    /// Returns the kind of this name; `None` if this release knows none.
    pub fn parse(name: &str) -> Option<ServerKind> {
        match name {
            "http" => Some(ServerKind::Http),
            "stdio" => Some(ServerKind::Stdio),
            "web_page" => Some(ServerKind::WebPage),
            _ => None,
        }
    }

    /// Returns the name, as stored and shown.
    pub fn as_str(&self) -> &str {
        match self {
            ServerKind::Http => "http",
            ServerKind::Stdio => "stdio",
            ServerKind::WebPage => "web_page",
            ServerKind::Unknown(name) => name,
        }
    }
}

impl From<String> for ServerKind {
    fn from(name: String) -> ServerKind {
        ServerKind::parse(&name).unwrap_or_else(|| ServerKind::Unknown(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for name in ServerKind::NAMES {
            assert_eq!(ServerKind::parse(name).as_ref().map(ServerKind::as_str), Some(name));
        }
        assert_eq!(ServerKind::from("later".to_owned()).as_str(), "later");
        assert_eq!(ServerKind::parse("later"), None);
    }
}
