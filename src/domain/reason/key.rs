//! Shapes of actions.

use crate::domain::text_enum::text_enum;

text_enum! {
    /// Shape of an action.
    pub enum ActionKey {
        /// Reads a file; its path.
        ReadFile = "read_file",
        /// Reads a configuration file; its path.
        ReadConfiguration = "read_configuration",
        /// Writes a file; its path.
        WriteFile = "write_file",
        /// Runs a command; the command line.
        Execute = "execute",
        /// Sends a request; method and URL.
        Request = "request",
        /// Runs a statement in a database; the statement, and the server.
        Sql = "sql",
        /// Does something to something; verb, object, its name and where it is. Any but the verb may be empty.
        Act = "act",
        /// Submits a form of a web page; method, target, page, numbers of fields, then the fields.
        SubmitForm = "submit_form",
        /// Any other call; tool, server and number of arguments.
        Call = "call",
    }
}
