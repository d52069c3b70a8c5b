/** Goes on after a sign-in. The address with the provider's code does not stay in the history. */
location.replace("/");
