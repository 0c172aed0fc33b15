// Texts of the account page.

export const T = {
  title: "Account",
  profile: "Profile",
  userName: "User name",
  displayName: "Display name",
  email: "Email",
  teams: "Teams",
  save: "Save",
  saved: "Saved",
  password: "Password",
  currentPassword: "Current password",
  newPassword: "New password",
  repeatPassword: "New password again",
  changePassword: "Change the password",
  passwordChanged: "The password is changed. Other logins have been signed out.",
  passwordRule: "At least 12 characters. A new password signs out all other logins; other access keys stay valid.",
  notEqual: "The two passwords differ.",
  logins: "Logins",
  loginsText:
    "Browsers and command lines that are signed in as you. Signing one out ends its open pages within ten seconds.",
  thisBrowser: "this browser",
  lastUsed: "Last used",
  expires: "Expires",
  client: "Client",
  revoke: "Sign out",
  revokeOf: (client) => `Sign out ${client}`,
  by: "Signed in with",
  byPassword: "Password",
  byKey: "Access key",
  allowedHere: "your consent",
  stale: "Not confirmed",
  staleText: "The provider could not be asked lately whether this login still holds",
  signOutEverywhere: "Sign out everywhere",
  signOutEverywhereText: "This ends all your logins, also in this browser. Access keys of programs stay valid.",
  keys: "Access keys",
  allKeys: "Show access keys",
  browser: (browser, system) =>
    [
      browser ?? "Browser",
      system && `on ${system}`,
    ]
      .filter(Boolean)
      .join(" "),
};
