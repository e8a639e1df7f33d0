//! Kinds of upstream servers.

/// Kind of an upstream server: what its address is, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// MCP over HTTP, at a URL.
    Http,
    /// Program of the deployment, over its standard input and output.
    Stdio,
    /// Kind of a newer release, by its name. Such a server is shown, and never contacted.
    Unknown(Box<str>),
}

impl ServerKind {
    /// Names of the kinds that can be added.
    pub const NAMES: [&'static str; 2] = ["http", "stdio"];

    /// Returns the kind of this name; `None` if this release knows none.
    pub fn parse(name: &str) -> Option<ServerKind> {
        match name {
            "http" => Some(ServerKind::Http),
            "stdio" => Some(ServerKind::Stdio),
            _ => None,
        }
    }

    /// Returns the name, as stored and shown.
    pub fn as_str(&self) -> &str {
        match self {
            ServerKind::Http => "http",
            ServerKind::Stdio => "stdio",
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
        assert_eq!(ServerKind::from("web_page".to_owned()).as_str(), "web_page");
        assert_eq!(ServerKind::parse("web_page"), None);
    }
}
