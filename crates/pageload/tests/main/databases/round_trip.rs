//! Round trips of writing and reading.

use headstart_pageload::db::{SecretKey, read, write};
use proptest::prelude::*;

use super::made::database;

proptest! {
    #[test]
    fn any_database_comes_back(database in database(), secret in any::<[u8; 32]>()) {
        let key = SecretKey::from_bytes(&secret);
        let file = write(&database, Some(&key)).unwrap();
        prop_assert_eq!(&read(&file, &[key.public()]).unwrap(), &database);
        let again = write(&database, Some(&key)).unwrap();
        prop_assert!(file == again, "one database is one file");
    }
}
